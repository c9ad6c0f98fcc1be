// The end of a segment: the warps' sums are added in order, then, by the last block of a request
// and head group to finish, the segments'. The same inputs give the same bits.
#pragma once

#include "head_group.cuh"

namespace asynct::decode {

inline constexpr int kThreads = 32 * kDecodeWarps;

// What a block keeps in shared memory, as registers are short.
struct BlockState {
  HeadGroup group;
  int segments;  // in the list
  int counted;   // thread 0's: how many of a request's segments were counted before
};

// Ends the segments of a block, each in three steps with a barrier before each. The steps of three
// segments share one barrier, so that nobody waits for memory: at the barrier of segment i the
// warps' sums of i are there, then the block's sums of i - 1, and then the answer whether i - 2 was
// the last of its request to be counted. After its last segment a block passes two more barriers.
template <class Math>
class SegmentEnds {
 public:
  // `block` is in shared memory.
  __device__ __forceinline__ SegmentEnds(const DecodeParams& p, BlockState& block)
      : p_(p), block_(block) {}

  // `sums` [kDecodeWarps][heads of the group][kHeadDim] of the segment at `listed`, if there is
  // one.
  __device__ __forceinline__ void pass(int listed, const float* sums) {
    const int before = listed - static_cast<int>(gridDim.y);
    const int long_before = before - static_cast<int>(gridDim.y);
    if (__syncthreads_or(threadIdx.x == 0 && long_before >= 0 && is_last(long_before))) {
      add_segments(long_before);
    }
    if (threadIdx.x == 0 && before >= 0 && before < block_.segments) count(before);
    if (listed < block_.segments) add_warps(listed, sums);
  }

 private:
  // Where the block's sums of a segment lie.
  __device__ __forceinline__ float* partial(int listed) const {
    const int64_t row = static_cast<int64_t>(listed) * p_.attention.heads + block_.group.first;
    return p_.schedule.partials + row * Math::kHeadDim;
  }
  // Segments whose sums are written, of a request and this group.
  __device__ __forceinline__ int32_t* finished(const DecodeSegment& segment) const {
    return p_.schedule.finished + segment.request * gridDim.x + blockIdx.x;
  }

  // The sums are the output if the segment is its request's only one.
  __device__ __forceinline__ void add_warps(int listed, const float* sums) const {
    const DecodeSegment segment = load_segment(p_, listed);
    const int values = block_.group.heads * Math::kHeadDim;
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
    block_.counted = atomicAdd(finished(segment), 1);
  }

  // Whether all sums of the request are written; the block then sees them.
  __device__ __forceinline__ bool is_last(int listed) const {
    const DecodeSegment segment = load_segment(p_, listed);
    if (segment.count == 1 || block_.counted != segment.count - 1) return false;
    *finished(segment) = 0;
    __threadfence();
    return true;
  }

  __device__ __forceinline__ void add_segments(int listed) const {
    const DecodeSegment segment = load_segment(p_, listed);
    const float* first = partial(listed - segment.index);
    const int64_t step = static_cast<int64_t>(p_.attention.heads) * Math::kHeadDim;
#pragma unroll 1
    for (int i = threadIdx.x; i < block_.group.heads * Math::kHeadDim; i += kThreads) {
      float sum = 0.0f;
#pragma unroll 8
      for (int s = 0; s < segment.count; ++s) sum += __ldcg(first + s * step + i);
      write_out(segment.token, i, sum);
    }
  }

  __device__ __forceinline__ void write_out(int token, int index, float sum) const {
    using Element = typename Math::Element;
    const AttentionParams& p = p_.attention;
    const int head = block_.group.first + index / Math::kHeadDim;
    const float stored = stored_scale(p.cache.value, block_.group.kv_head);
    Element* out = static_cast<Element*>(p.out) + token * p.out_token_stride +
                   head * p.out_head_stride;
    out[index % Math::kHeadDim] = static_cast<Element>(p.gate.gamma[head] * stored * sum);
  }

  const DecodeParams& p_;
  BlockState& block_;
};

}  // namespace asynct::decode
