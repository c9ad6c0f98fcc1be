// The end of a segment: the warps' sums added in order, then, by the last block of a request and head
// group to finish, the segments' in order. The same inputs give the same bits.
#pragma once

#include "head_group.cuh"

namespace asynct::decode {

inline constexpr int kThreads = 32 * kDecodeWarps;

// Rounds the output of one head's dimension.
template <class Math>
__device__ __forceinline__ void write_out(const DecodeParams& params, const HeadGroup& group,
                                          int token, int index, float sum) {
  const AttentionParams& p = params.attention;
  const int head = group.first + index / Math::kHeadDim;
  const CacheView& values = p.cache.value;
  const float stored = values.scale == nullptr
                           ? 1.0f
                           : values.scale[group.kv_head * values.scale_stride];
  auto* out = static_cast<typename Math::Element*>(p.out) + token * p.out_token_stride +
              head * p.out_head_stride;
  out[index % Math::kHeadDim] =
      static_cast<typename Math::Element>(p.gate.gamma[head] * stored * sum);
}

// Whether this block is the last of its request and head group to arrive here; the partials that the
// others wrote before are then visible.
__device__ __forceinline__ bool arrive_last(int32_t* finished, int segments) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(finished, 1) == segments - 1;
    if (last) *finished = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// Ends a task; `sums` [kDecodeWarps][heads of the group][kHeadDim] are in shared memory.
template <class Math>
__device__ __forceinline__ void add_sums(const DecodeParams& p, const Task& task,
                                         const float* sums) {
  const DecodeSchedule& schedule = p.schedule;
  const DecodeSegment& segment = task.segment;
  const HeadGroup group = head_group(p, task.group);
  const int values = group.heads * Math::kHeadDim;
  const int segments = SegmentsOf(segment.length, schedule.segment_keys);
  const int64_t stride = static_cast<int64_t>(p.attention.heads) * Math::kHeadDim;
  float* partial = schedule.partials + task.listed * stride + group.first * Math::kHeadDim;

  __syncthreads();
  for (int i = threadIdx.x; i < values; i += kThreads) {
    float sum = sums[i];
#pragma unroll
    for (int warp = 1; warp < kDecodeWarps; ++warp) sum += sums[warp * values + i];
    if (segments == 1) {
      write_out<Math>(p, group, segment.token, i, sum);
    } else {
      partial[i] = sum;
    }
  }
  if (segments == 1) return;

  int32_t* finished = schedule.finished + segment.request * p.groups + task.group;
  if (!arrive_last(finished, segments)) return;
  const float* first = partial - segment.first_key / schedule.segment_keys * stride;
  for (int i = threadIdx.x; i < values; i += kThreads) {
    float sum = __ldcg(first + i);
#pragma unroll 8
    for (int s = 1; s < segments; ++s) sum += __ldcg(first + s * stride + i);
    write_out<Math>(p, group, segment.token, i, sum);
  }
}

}  // namespace asynct::decode
