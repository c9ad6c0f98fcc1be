// The launch of hp1_prefill_mma and its instances.

#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "mma_kernel.cuh"

namespace asynct {
namespace {

using namespace prefill_mma;

template <class T, class Stored, int kDim, int kRowTiles, class Form>
void Launch(const AttentionParams& params, cudaStream_t stream) {
  constexpr const char* kName = "hp1_prefill_mma";
  const auto kernel = HP1PrefillMmaKernel<T, Stored, kDim, kRowTiles, Form>;
  constexpr int kBytes = sizeof(Shared<T, kDim, kRowTiles>);
  static_assert(kBytes <= 99 << 10, "what a block may have on every card of compute capability 8");
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), kName);
  const int rows = params.max_query_len * (params.heads / params.kv_heads);
  const RowBlocks blocks{rows, Shape<kDim, kRowTiles>::kRows};
  kernel<<<params.requests * params.kv_heads * blocks.count(), kThreads, kBytes, stream>>>(params);
  Check(cudaGetLastError(), kName);
}

// A block has 128 rows where registers hold two row tiles a warp and no request would leave half of
// them empty, else 64. The bits of a row are the same.
template <class T, class Stored, int kDim>
void DispatchForm(const AttentionParams& params, cudaStream_t stream) {
  if (!is_fast_gate(params.gate)) return Launch<T, Stored, kDim, 1, GeneralForm>(params, stream);
  if constexpr (kDim <= 128) {
    const int64_t rows = int64_t{params.max_query_len} * (params.heads / params.kv_heads);
    if (rows > Shape<kDim, 1>::kRows) return Launch<T, Stored, kDim, 2, FastForm>(params, stream);
  }
  Launch<T, Stored, kDim, 1, FastForm>(params, stream);
}

template <class T, class Stored>
void DispatchHeadDim(const AttentionParams& params, cudaStream_t stream) {
  switch (params.head_dim) {
    case 64: return DispatchForm<T, Stored, 64>(params, stream);
    case 128: return DispatchForm<T, Stored, 128>(params, stream);
    case 256: return DispatchForm<T, Stored, 256>(params, stream);
  }
}

template <class T>
void DispatchStored(const AttentionParams& params, cudaStream_t stream) {
  if (params.cache.dtype == DataType::kFloat8E4M3) {
    DispatchHeadDim<T, __nv_fp8_e4m3>(params, stream);
  } else {
    DispatchHeadDim<T, T>(params, stream);
  }
}

}  // namespace

void HP1PrefillMma(const AttentionParams& params, cudaStream_t stream) {
  if (params.requests == 0 || params.max_query_len == 0) return;
  if (params.dtype == DataType::kBFloat16) {
    DispatchStored<__nv_bfloat16>(params, stream);
  } else {
    DispatchStored<__half>(params, stream);
  }
}

}  // namespace asynct
