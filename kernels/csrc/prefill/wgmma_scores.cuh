// What happens to a tile of raw scores in registers: gate, causal mask, packing.
//
// A thread owns a run of kRun consecutive keys, a quarter of the tile: key kRun q + 2 j + e stands
// in column 8 j + 2 q + e (q = lane % 4). With wgmma's accumulators (ptx/wgmma.cuh),
// s[4 j + 2 h + e] is its score in row h. The keys to the left of a run end the next lane's.
#pragma once

#include <cstdint>

#include "asynct/gate.cuh"
#include "asynct/vector.cuh"

namespace asynct::prefill_wgmma {

// Index of the score of key `key` of the thread's run in its row `row`.
constexpr int ScoreOf(int key, int row) { return key / 2 * 4 + row * 2 + key % 2; }

// The value of the lane that owns the keys to the left, in a quad's first lane that of its last.
__device__ __forceinline__ float FromTheLeft(float value) {
  const int lane = threadIdx.x % 32;
  return __shfl_sync(~0u, value, (lane & ~3) | ((lane - 1) & 3));
}

// The gate of the fast instances, tile after tile of one row block; keys have no scale there.
template <int kRun>
class FastRowGate {
 public:
  __device__ __forceinline__ FastRowGate(const GateParams& gate, int head, float)
      : gate_(make_gate(gate.sigma[head], gate.alpha[head], gate.scale, gate.weights[0])) {}

  // Turns the scores into p, in place.
  __device__ __forceinline__ void Apply(float (&s)[2 * kRun]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const GateLeft own = gate_left(s[ScoreOf(kRun - 1, h)], s[ScoreOf(kRun - 2, h)]);
      const GateLeft got = {FromTheLeft(own.r1), FromTheLeft(own.r2)};
      GateLeft left = threadIdx.x % 4 == 0 ? before_[h] : got;
      before_[h] = got;
#pragma unroll
      for (int key = 0; key < kRun; key += 2) {
        gate_pair(gate_, s[ScoreOf(key, h)], s[ScoreOf(key + 1, h)], left);
      }
    }
  }

 private:
  Gate gate_;
  GateLeft before_[2] = {};  // in a row's first lane: r of the last two keys of the tile before
};

// The gate of the general instances: up to seven keys to the left.
template <int kRun>
class GeneralRowGate {
 public:
  // `key_scale` is the factor of the stored keys.
  __device__ __forceinline__ GeneralRowGate(const GateParams& gate, int head, float key_scale)
      : gate_(make_general_gate(gate, head, gate.scale * key_scale)) {}

  __device__ __forceinline__ void Apply(float (&s)[2 * kRun]) {
    static_assert(kRun >= kMaxWindow - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      GeneralLeft left;
#pragma unroll
      for (int m = 0; m < kMaxWindow - 1; ++m) {
        const float got = FromTheLeft(gate_r(gate_, s[ScoreOf(kRun - 1 - m, h)]));
        left.r[m] = threadIdx.x % 4 == 0 ? before_[h].r[m] : got;
        before_[h].r[m] = got;
      }
#pragma unroll
      for (int key = 0; key < kRun; ++key) {
        float& score = s[ScoreOf(key, h)];
        score = gate_one(gate_, score, left);
      }
    }
  }

 private:
  GeneralGate gate_;
  GeneralLeft before_[2] = {};
};

// Zeroes p of keys that the query may not see. `seen[h]` is the number of the tile's keys, counted
// from its first, that the thread's row h sees; also below 0, or more than there are.
template <int kRun>
__device__ __forceinline__ void MaskScores(float (&p)[2 * kRun], const int (&seen)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int own = min(max(seen[h] - static_cast<int>(threadIdx.x % 4) * kRun, 0), kRun);
    const uint32_t bits = static_cast<uint32_t>((uint64_t{1} << own) - 1);
#pragma unroll
    for (int key = 0; key < kRun; ++key) {
      if ((bits >> key & 1) == 0) p[ScoreOf(key, h)] = 0.0f;
    }
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
