// Every request's pages, copied into plain tensors: a block takes 16 rows of one request.

#include "asynct/broken.h"
#include "asynct/fp8.cuh"
#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "asynct/row_grid.h"
#include "asynct/vector.cuh"

namespace asynct {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 16;    // of a block
constexpr int kVector = 8;   // elements, 16 bytes of a copy

// A vector of the cache in the copies' type; of fp8, without the scale.
template <class T, class Stored>
__device__ __forceinline__ uint4 Load(const CacheView& view, int64_t block, int64_t slot, int head,
                                      int channel) {
  const Stored* from = static_cast<const Stored*>(view.data) + block * view.block_stride +
                       slot * view.slot_stride + head * view.head_stride + channel;
  if constexpr (sizeof(Stored) == sizeof(T)) {
    return __ldg(reinterpret_cast<const uint4*>(from));
  } else {
    const uint2 bytes = __ldg(reinterpret_cast<const uint2*>(from));
    uint32_t low[2], high[2];
    FromFp8<T>(bytes.x, low);
    FromFp8<T>(bytes.y, high);
    return make_uint4(low[0], low[1], high[0], high[1]);
  }
}

template <class T, class Stored>
__global__ void __launch_bounds__(kThreads)
    GatherPagesKernel(const __grid_constant__ AttentionParams params,
                      const __grid_constant__ GatheredPages pages) {
  const int request = blockIdx.y;
  const int keys = params.seq_lens[request];
  const int64_t end = CeilDiv(keys, pages.row_multiple) * pages.row_multiple;
  const int channels = params.kv_heads * params.head_dim;
  const int32_t* blocks = params.block_table + request * params.table_stride;
  for (int i = threadIdx.x * kVector; i < kRows * channels; i += kThreads * kVector) {
    const int64_t row = int64_t{blockIdx.x} * kRows + i / channels;
    if (row >= end) return;
    const int head = i % channels / params.head_dim;
    const int channel = i % params.head_dim;
    uint4 key = make_uint4(0, 0, 0, 0);
    uint4 value = key;
    if (row < keys && !kBroken) {
      const int64_t block = blocks[row / params.cache.block_size];
      const int64_t slot = row % params.cache.block_size;
      key = Load<T, Stored>(params.cache.key, block, slot, head, channel);
      value = Load<T, Stored>(params.cache.value, block, slot, head, channel);
    }
    const int64_t to = (request * pages.request_rows + row) * channels + i % channels;
    *reinterpret_cast<uint4*>(static_cast<T*>(pages.key) + to) = key;
    *reinterpret_cast<uint4*>(static_cast<T*>(pages.value) + to) = value;
  }
}

template <class T>
void Dispatch(const AttentionParams& params, const GatheredPages& pages, cudaStream_t stream) {
  const auto kernel = params.cache.dtype == DataType::kFloat8E4M3
                          ? GatherPagesKernel<T, __nv_fp8_e4m3>
                          : GatherPagesKernel<T, T>;
  const int64_t rows = CeilDiv(params.max_seq_len, pages.row_multiple) * pages.row_multiple;
  const dim3 grid(CeilDiv(rows, kRows), params.requests);
  kernel<<<grid, kThreads, 0, stream>>>(params, pages);
  Check(cudaGetLastError(), "gather_pages");
}

}  // namespace

void GatherPages(const AttentionParams& params, const GatheredPages& pages, cudaStream_t stream) {
  if (params.requests == 0 || params.max_seq_len == 0) return;
  if (params.dtype == DataType::kBFloat16) {
    Dispatch<__nv_bfloat16>(params, pages, stream);
  } else {
    Dispatch<__half>(params, pages, stream);
  }
}

}  // namespace asynct
