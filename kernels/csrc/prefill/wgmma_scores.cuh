// What happens to a tile of raw scores in registers: gate, causal mask, packing.
//
// A thread's columns of a row are, of each 4 * kRun keys, kRun consecutive ones: key 4 kRun g +
// kRun q + 2 j + e stands in column 4 kRun g + 8 j + 2 q + e (q = lane % 4). With wgmma's
// accumulators (ptx/wgmma.cuh), s[4 (kRun / 2 g + j) + 2 h + e] is its score in row h.
#pragma once

#include <cstdint>

#include "asynct/gate.cuh"
#include "asynct/vector.cuh"

namespace asynct::prefill_wgmma {

// The lane of the same row that is `distance` to the left, going round.
__device__ __forceinline__ int LaneToTheLeft(int distance) {
  const int lane = threadIdx.x % 32;
  return (lane & ~3) | ((lane - distance) & 3);
}

// The gate of the fast instances, tile after tile of one row block; keys have no scale there.
template <int kRun>
class FastRowGate {
 public:
  __device__ __forceinline__ FastRowGate(const GateParams& gate, int head, float)
      : gate_(make_gate(gate.sigma[head], gate.alpha[head], gate.scale, gate.weights[0])) {}

  // Turns the scores into p, in place.
  template <int kScores>
  __device__ __forceinline__ void Apply(float (&s)[kScores]) {
    constexpr int kPairs = kRun / 2;
    const int left_lane = LaneToTheLeft(1);
#pragma unroll
    for (int i = 0; i < kScores / 4; i += kPairs) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float* run = s + 4 * i + 2 * h;
        const float* last = run + 4 * (kPairs - 1);
        const GateLeft own = gate_left(last[1], last[0]);
        const GateLeft got = {__shfl_sync(~0u, own.r1, left_lane),
                              __shfl_sync(~0u, own.r2, left_lane)};
        GateLeft left = threadIdx.x % 4 == 0 ? before_[h] : got;
        before_[h] = got;
#pragma unroll
        for (int j = 0; j < kPairs; ++j) gate_pair(gate_, run[4 * j], run[4 * j + 1], left);
      }
    }
  }

 private:
  Gate gate_;
  GateLeft before_[2] = {};  // in a row's first lane: r of the last two keys before
};

// The gate of the general instances: runs of four keys, up to seven keys to the left.
class GeneralRowGate {
 public:
  // `key_scale` is the factor of the stored keys.
  __device__ __forceinline__ GeneralRowGate(const GateParams& gate, int head, float key_scale)
      : gate_(make_general_gate(gate, head, gate.scale * key_scale)) {}

  template <int kScores>
  __device__ __forceinline__ void Apply(float (&s)[kScores]) {
#pragma unroll
    for (int i = 0; i < kScores; i += 8) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float* run[4] = {&s[i + 2 * h], &s[i + 2 * h + 1], &s[i + 2 * h + 4], &s[i + 2 * h + 5]};
        GeneralLeft left = LeftOf(run, before_[h]);
#pragma unroll
        for (float* score : run) *score = gate_one(gate_, *score, left);
      }
    }
  }

 private:
  // r of the seven keys to the left of the thread's run: four of the next lane's, three of the one
  // beyond. A lane that has none to its left in the row looks, going round, at the run before of
  // one that has no need of it there: `before` keeps it.
  __device__ __forceinline__ GeneralLeft LeftOf(float* const (&run)[4], float (&before)[4]) {
    const int place = threadIdx.x % 4;
    GeneralLeft left;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float own = gate_r(gate_, *run[e]);
      left.r[3 - e] = __shfl_sync(~0u, place == 3 ? before[e] : own, LaneToTheLeft(1));
      if (e > 0) {
        left.r[7 - e] = __shfl_sync(~0u, place >= 2 ? before[e] : own, LaneToTheLeft(2));
      }
      before[e] = own;
    }
    return left;
  }

  GeneralGate gate_;
  float before_[2][4] = {};
};

// Zeroes p of keys that the query may not see. `seen[h]` is the number of the tile's keys, counted
// from its first, that the thread's row h sees; also below 0, or more than there are.
template <int kRun, int kScores>
__device__ __forceinline__ void MaskScores(float (&p)[kScores], const int (&seen)[2]) {
  constexpr int kPairs = kRun / 2;
  const int first = threadIdx.x % 4 * kRun;
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const int key = i / 4 / kPairs * 4 * kRun + i / 4 % kPairs * 2 + i % 2;
    if (key + first >= seen[i / 2 % 2]) p[i] = 0.0f;
  }
}

template <class T>
__device__ __forceinline__ uint32_t PackPair(float a, float b) {
  const auto pair = PairOf<T>::Round(a, b);
  return reinterpret_cast<const uint32_t&>(pair);
}

// Accumulators to the A fragments of the product with V.
template <class T, int kScores>
__device__ __forceinline__ void PackScores(const float (&p)[kScores],
                                           uint32_t (&fragments)[kScores / 8][4]) {
#pragma unroll
  for (int i = 0; i < kScores; i += 2) {
    fragments[i / 8][i / 2 % 4] = PackPair<T>(p[i], p[i + 1]);
  }
}

}  // namespace asynct::prefill_wgmma
