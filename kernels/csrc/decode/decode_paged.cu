// The launch of the decode kernel: which instance serves a problem.

#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "kernel.cuh"

namespace asynct {
namespace {

using decode::FastKeysGate;
using decode::GeneralKeysGate;

constexpr char kName[] = "hp1_decode_paged";

template <class Cache>
decode::CacheRows InBytes(const CacheView& view) {
  constexpr int kSize = sizeof(Cache);
  return {static_cast<const char*>(view.data), view.head_stride * kSize,
          static_cast<uint32_t>(view.block_stride * kSize),
          static_cast<int>(view.slot_stride * kSize)};
}

// Whether the kernel, as the driver has it for this card, may start before the one ahead has ended:
// code for earlier cards does not wait for that.
template <class Kernel>
bool WaitsForKernelAhead(Kernel kernel) {
  cudaFuncAttributes attributes{};
  Check(cudaFuncGetAttributes(&attributes, kernel), kName);
  return attributes.ptxVersion >= 90;
}

template <class T, class Cache, int kHeadDim, class Gate>
void LaunchInstance(const AttentionParams& attention, const RawStep* raw,
                    const DecodeShape& shape, void* workspace, cudaStream_t stream) {
  using Math = decode::GroupMath<T, Cache, kHeadDim, Gate>;
  const auto kernel = decode::DecodePagedKernel<Math, DecodeResidents(kHeadDim)>;
  const int ratio = attention.heads / attention.kv_heads;
  const decode::DecodeParams params = {attention, PlaceDecodeSchedule(workspace, shape),
                                       InBytes<Cache>(attention.cache.key),
                                       InBytes<Cache>(attention.cache.value), ratio,
                                       raw ? *raw : RawStep{}};
  const int shared = decode::SharedBytes<Math>(std::min(ratio, kGroupHeads));
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), kName);
  int device = 0;
  int multiprocessors = 0;
  Check(cudaGetDevice(&device), kName);
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), kName);
  const int groups = HeadGroups(attention.heads, attention.kv_heads);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(groups / attention.kv_heads, attention.kv_heads,
                        Stretches(shape, multiprocessors));
  config.blockDim = decode::kThreads;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = WaitsForKernelAhead(kernel) ? 1 : 0;
  Check(cudaLaunchKernelEx(&config, kernel, params), kName);
}

template <class T, class Cache, int kHeadDim, class... Arguments>
void LaunchGate(const AttentionParams& params, Arguments... arguments) {
  if (is_fast_gate(params.gate)) {
    LaunchInstance<T, Cache, kHeadDim, FastKeysGate>(params, arguments...);
  } else {
    LaunchInstance<T, Cache, kHeadDim, GeneralKeysGate>(params, arguments...);
  }
}

template <class T, class Cache, class... Arguments>
void LaunchHeadDim(const AttentionParams& params, Arguments... arguments) {
  switch (params.head_dim) {
    case 64: return LaunchGate<T, Cache, 64>(params, arguments...);
    case 128: return LaunchGate<T, Cache, 128>(params, arguments...);
    case 256: return LaunchGate<T, Cache, 256>(params, arguments...);
  }
}

template <class T, class... Arguments>
void LaunchCache(const AttentionParams& params, Arguments... arguments) {
  if (params.cache.dtype == DataType::kFloat8E4M3) {
    LaunchHeadDim<T, __nv_fp8_e4m3>(params, arguments...);
  } else {
    LaunchHeadDim<T, T>(params, arguments...);
  }
}

}  // namespace

void HP1DecodePaged(const AttentionParams& params, const RawStep* raw, const DecodeShape& shape,
                    void* workspace, cudaStream_t stream) {
  if (params.dtype == DataType::kBFloat16) {
    LaunchCache<__nv_bfloat16>(params, raw, shape, workspace, stream);
  } else {
    LaunchCache<__half>(params, raw, shape, workspace, stream);
  }
}

}  // namespace asynct
