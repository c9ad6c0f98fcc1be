// The end of a segment: the splits of a block added in order, then, by the last block of a request
// and head to finish, the segments in order. Same inputs, same bits.
#pragma once

#include "params.h"

namespace asynct::bounds {

// `sums` [kSplits][kHeads][kValues] in shared memory, one row a warp; the block is synchronised
// here, once where the segment is the request's only one.
template <class Math, int kHeads, int kSplits>
__device__ __forceinline__ void add_partials(const Params& p, const WorkItem& item, int index,
                                             int head, const float* sums) {
  constexpr int kValues = Math::kValues;
  constexpr int kThreads = 32 * kHeads * kSplits;
  const int segments = max((item.length + p.segment_keys - 1) / p.segment_keys, 1);
  const int segment = item.first_key / p.segment_keys;
  const int64_t stride = static_cast<int64_t>(p.kv_heads) * kValues;
  float* partial = p.partials + index * stride + head * kValues;
  float* out = p.out + item.request * stride + head * kValues;

  __syncthreads();
  for (int i = threadIdx.x; i < kHeads * kValues; i += kThreads) {
    float sum = sums[i];
#pragma unroll
    for (int split = 1; split < kSplits; ++split) {
      sum = Math::add(sum, sums[split * kHeads * kValues + i]);
    }
    if (segments == 1) {
      out[i] = Math::finish(p, head + i / kValues, i % kValues, sum);
    } else {
      partial[i] = sum;
    }
  }
  if (segments == 1) return;

  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* finished = p.finished + item.request * p.kv_heads + head;
    last = atomicAdd(finished, 1) == segments - 1;
    if (last) *finished = 0;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  const float* first = partial - segment * stride;
  for (int i = threadIdx.x; i < kHeads * kValues; i += kThreads) {
    float sum = __ldcg(first + i);
#pragma unroll 4
    for (int s = 1; s < segments; ++s) sum = Math::add(sum, __ldcg(first + s * stride + i));
    out[i] = Math::finish(p, head + i / kValues, i % kValues, sum);
  }
}

}  // namespace asynct::bounds
