// The end of a segment: the warps' sums are added in order, then, by the last block of a request
// and head group to finish, the segments'. The same inputs give the same bits.
#pragma once

#include "head_group.cuh"

namespace asynct::decode {

inline constexpr int kThreads = 32 * kDecodeWarps;

// Ends the segments of a block, each in three steps with a barrier before each. The steps of three
// segments share one barrier, so that nobody waits for memory: at the barrier of segment i the
// warps' sums of i are there, then the block's sums of i - 1, and then the answer whether i - 2 was
// the last of its request to be counted.
template <class Math>
class SegmentEnds {
 public:
  __device__ __forceinline__ SegmentEnds(const DecodeParams& p, const DecodeCount& count) : p_(p) {
    state().count = count;
  }

  __device__ __forceinline__ int segments() const { return state().count.segments; }
  __device__ __forceinline__ int segment_keys() const { return state().count.segment_keys; }

  // `sums` [kDecodeWarps][heads of the group][kHeadDim] of the segment at `listed`.
  __device__ __forceinline__ void pass(int listed, const float* sums) {
    await(listed);
    add_warps(listed, sums);
  }

  // After the last segment; `listed` is where the next would be.
  __device__ __forceinline__ void drain(int listed) {
    if (!state().count.split) return;
#pragma unroll 1
    for (int i = 0; i < 2; ++i) await(listed + i * static_cast<int>(gridDim.z));
  }

 private:
  // Registers are short: each thread's own copies are in shared memory.
  struct State {
    DecodeCount count;
    int counted;  // how many of a request's segments were counted before
  };
  static __device__ __forceinline__ State& state() {
    __shared__ State states[kThreads];
    return states[threadIdx.x];
  }

  // Passes a barrier, counts the segment before `listed` and ends the one before that.
  __device__ __forceinline__ void await(int listed) {
    const int before = listed - static_cast<int>(gridDim.z);
    const int long_before = before - static_cast<int>(gridDim.z);
    if (__syncthreads_or(threadIdx.x == 0 && long_before >= 0 && is_last(long_before))) {
      add_segments(long_before);
    }
    if (threadIdx.x == 0 && before >= 0 && before < segments()) count(before);
  }

  // Where the block's sums of a segment lie.
  __device__ __forceinline__ float* partial(int listed) const {
    const int64_t row = static_cast<int64_t>(listed) * p_.attention.heads + head_group(p_).first;
    return p_.schedule.partials + row * Math::kHeadDim;
  }
  // Segments whose sums are written, of a request and this group.
  __device__ __forceinline__ int32_t* finished(const DecodeSegment& segment) const {
    return p_.schedule.finished + segment.request * gridDim.x * gridDim.y +
           blockIdx.y * gridDim.x + blockIdx.x;
  }

  // The sums are the output if the segment is its request's only one.
  __device__ __forceinline__ void add_warps(int listed, const float* sums) const {
    const DecodeSegment segment = load_segment(p_, listed);
    const int values = head_group(p_).heads * Math::kHeadDim;
#pragma unroll 1
    for (int i = threadIdx.x; i < values; i += kThreads) {
      float sum = sums[i];
#pragma unroll
      for (int warp = 1; warp < kDecodeWarps; ++warp) sum += sums[warp * values + i];
      if (segment.count == 1) {
        write_out(segment.token, i, sum);
      } else {
        partial(listed)[i] = sum;
      }
    }
  }

  // Counts a segment whose sums the whole block has written. The answer is not waited for.
  __device__ __forceinline__ void count(int listed) {
    const DecodeSegment segment = load_segment(p_, listed);
    if (segment.count == 1) return;
    __threadfence();
    state().counted = atomicAdd(finished(segment), 1);
  }

  // Whether all sums of the request are written; the block then sees them.
  __device__ __forceinline__ bool is_last(int listed) const {
    const DecodeSegment segment = load_segment(p_, listed);
    if (segment.count == 1 || state().counted != segment.count - 1) return false;
    *finished(segment) = 0;
    __threadfence();
    return true;
  }

  __device__ __forceinline__ void add_segments(int listed) const {
    const DecodeSegment segment = load_segment(p_, listed);
    const float* first = partial(listed - segment.index);
    const int64_t step = static_cast<int64_t>(p_.attention.heads) * Math::kHeadDim;
#pragma unroll 1
    for (int i = threadIdx.x; i < head_group(p_).heads * Math::kHeadDim; i += kThreads) {
      float sum = 0.0f;
#pragma unroll 8
      for (int s = 0; s < segment.count; ++s) sum += __ldcg(first + s * step + i);
      write_out(segment.token, i, sum);
    }
  }

  __device__ __forceinline__ void write_out(int token, int index, float sum) const {
    using Element = typename Math::Element;
    const AttentionParams& p = p_.attention;
    const int head = head_group(p_).first + index / Math::kHeadDim;
    const float stored = stored_scale(p.cache.value, head_group(p_).kv_head);
    Element* out = static_cast<Element*>(p.out) + token * p.out_token_stride +
                   head * p.out_head_stride;
    out[index % Math::kHeadDim] = static_cast<Element>(p.gate.gamma[head] * stored * sum);
  }

  const DecodeParams& p_;
};

}  // namespace asynct::decode
