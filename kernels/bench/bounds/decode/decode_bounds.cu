// The variants of the decode bench and the C functions through which decode_kernels.py runs them.
#include <cuda_runtime.h>

#include "bytes_math.cuh"
#include "cuda_core_math.cuh"
#include "mma_math.cuh"
#include "register_kernel.cuh"
#include "ring_kernel.cuh"
#include "stream_kernel.cuh"

namespace asynct::bounds {
namespace {

struct Variant {
  const char* name;
  const void* kernel;
  int threads;
  int shared_bytes;
  int group;  // query heads a KV head, 0 where only bytes move
  int longest_segment;
};

// A warp holds the block numbers of its share of a segment, one a lane.
constexpr int kLongestShare = 32 * kPageKeys;

template <class Math, Fetch kFetch, int kHeads, int kSplits, int kPages, bool kAhead, int kBlocks>
Variant registers(const char* name) {
  const auto kernel = register_kernel<Math, kFetch, kHeads, kSplits, kPages, kAhead, kBlocks>;
  return {name, reinterpret_cast<const void*>(kernel), 32 * kHeads * kSplits, 0, Math::kGroup,
          kLongestShare * kSplits};
}

template <class Math, template <int> class Copies, int kStages, int kHeads, int kSplits>
Variant ring(const char* name) {
  const auto kernel = ring_kernel<Math, Copies, kStages, kHeads, kSplits>;
  return {name, reinterpret_cast<const void*>(kernel), 32 * kHeads * kSplits,
          ring_shared_bytes<Math, Copies, kStages, kHeads, kSplits>(), Math::kGroup,
          kLongestShare * kSplits};
}

using Quad = BytesMath<QuadRows, QuadRows>;
using QuadPair = BytesMath<QuadRows, PairRows>;
using RunPair = BytesMath<RunRows<8>, PairRows>;
using Eight = BytesMath<Rows<8>, Rows<8>>;
using Sixteen = BytesMath<Rows<16>, Rows<16>>;
template <int kGroup>
using Heads = MmaMath<HeadsAsRows, TransposedValues, kGroup>;
template <int kGroup>
using HeadsPaired = MmaMath<HeadsAsRows, PairedValues<1>, kGroup>;
template <int kGroup>
using Halves = MmaMath<HalvesAsRows, PairedValues<1>, kGroup>;
template <int kGroup>
using Keys = MmaMath<KeysAsRows, TransposedValues, kGroup>;
template <int kGroup>
using KeysPaired = MmaMath<KeysAsRows, PairedValues<2>, kGroup>;
constexpr Fetch kPlain = Fetch::kPlain;
constexpr Fetch kWholeRow = Fetch::kWholeRow;

// Names: work, then where the loads in flight live and what differs from the first of its kind;
// AxB is the block, A KV heads by B splits of a segment.
const Variant kVariants[] = {
    registers<Quad, kPlain, 1, 8, 1, true, 2>("bytes 1x8 64 B a row"),
    registers<Quad, kWholeRow, 1, 8, 1, true, 2>("bytes 1x8 64 B a row, L2 row"),
    registers<QuadPair, kWholeRow, 1, 8, 1, true, 2>("bytes 1x8 V 32 B a row, L2 row"),
    registers<Eight, kPlain, 1, 8, 1, true, 2>("bytes 1x8 128 B a row"),
    registers<Sixteen, kPlain, 1, 8, 1, true, 2>("bytes 1x8 256 B a row"),
    registers<Quad, kWholeRow, 1, 8, 1, false, 3>("bytes 1x8 one page, not ahead"),
    registers<Quad, kWholeRow, 1, 8, 2, false, 2>("bytes 1x8 two pages, not ahead"),
    registers<Quad, kWholeRow, 1, 8, 2, true, 1>("bytes 1x8 two pages ahead"),
    registers<Quad, kWholeRow, 1, 4, 1, true, 4>("bytes 1x4"),
    registers<Quad, kWholeRow, 4, 2, 1, true, 2>("bytes 4x2"),
    registers<Quad, kWholeRow, 8, 1, 1, true, 2>("bytes 8x1"),
    ring<Quad, AsyncCopies, 2, 1, 8>("bytes 1x8 cp.async, 2 stages"),
    ring<Quad, AsyncCopies, 4, 1, 4>("bytes 1x4 cp.async, 4 stages"),
    ring<Quad, BulkCopies, 2, 1, 8>("bytes 1x8 bulk rows, 2 stages"),
    ring<Quad, BulkCopies, 4, 1, 4>("bytes 1x4 bulk rows, 4 stages"),
    registers<Heads<2>, kWholeRow, 1, 8, 1, true, 1>("decode 1x8 heads x keys"),
    registers<HeadsPaired<2>, kWholeRow, 1, 8, 1, true, 1>("decode 1x8 heads x keys, paired V"),
    registers<Keys<2>, kWholeRow, 1, 8, 1, true, 1>("decode 1x8 keys x heads"),
    registers<KeysPaired<2>, kWholeRow, 1, 8, 1, true, 1>("decode 1x8 keys x heads, paired V"),
    registers<Heads<2>, kWholeRow, 1, 8, 1, false, 2>("decode 1x8 heads x keys, not ahead"),
    registers<Heads<2>, kWholeRow, 1, 4, 1, true, 3>("decode 1x4 heads x keys"),
    registers<Heads<2>, kWholeRow, 8, 1, 1, true, 1>("decode 8x1 heads x keys"),
    registers<RunPair, kWholeRow, 1, 8, 1, false, 2>("bytes 1x8 whole lines a load, not ahead"),
    registers<Halves<2>, kWholeRow, 1, 8, 1, false, 2>("decode 1x8 halves x keys, not ahead"),
    registers<Halves<2>, kWholeRow, 1, 4, 1, true, 3>("decode 1x4 halves x keys"),
    registers<Heads<8>, kWholeRow, 1, 8, 1, true, 1>("decode group 8, 1x8 heads x keys"),
    registers<CudaCoreMath<8>, kPlain, 1, 8, 1, true, 1>("decode 1x8 CUDA cores, 8 lanes a key"),
    registers<CudaCoreMath<16>, kPlain, 1, 8, 1, true, 1>("decode 1x8 CUDA cores, 16 lanes a key"),
    ring<Heads<2>, AsyncCopies, 2, 1, 8>("decode 1x8 heads x keys, cp.async"),
    ring<Heads<2>, BulkCopies, 2, 1, 8>("decode 1x8 heads x keys, bulk rows"),
};
constexpr int kCount = sizeof(kVariants) / sizeof(kVariants[0]);

}  // namespace
}  // namespace asynct::bounds

#define ASYNCT_EXPORT extern "C" __attribute__((visibility("default")))

using asynct::bounds::kCount;
using asynct::bounds::kVariants;

ASYNCT_EXPORT const char* decode_bounds_name(int variant) {
  return variant < kCount ? kVariants[variant].name : nullptr;
}

ASYNCT_EXPORT int decode_bounds_group(int variant) { return kVariants[variant].group; }

ASYNCT_EXPORT int decode_bounds_longest_segment(int variant) {
  return kVariants[variant].longest_segment;
}

// Returns how many blocks of the variant a multiprocessor holds, or minus the CUDA error. To be
// called before the variant's first launch.
ASYNCT_EXPORT int decode_bounds_prepare(int variant) {
  const auto& v = kVariants[variant];
  int blocks = 0;
  cudaError_t error = cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           v.shared_bytes);
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, v.kernel, v.threads,
                                                          v.shared_bytes);
  }
  return error == cudaSuccess ? blocks : -static_cast<int>(error);
}

// Returns the CUDA error of the launch.
ASYNCT_EXPORT int decode_bounds_launch(int variant, const asynct::bounds::Params* params, int grid,
                                       void* stream) {
  const auto& v = kVariants[variant];
  asynct::bounds::Params copy = *params;
  void* args[] = {&copy};
  return cudaLaunchKernel(v.kernel, dim3(grid), dim3(v.threads), args, v.shared_bytes,
                          static_cast<cudaStream_t>(stream));
}

ASYNCT_EXPORT int decode_bounds_stream(const void* data, int64_t bytes, uint32_t* sink, int grid,
                                       void* stream) {
  asynct::bounds::stream_kernel<<<grid, 512, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const uint4*>(data), bytes / 16, sink);
  return cudaGetLastError();
}
