// What happens to a tile of scores in registers: gate, causal mask, packing.
//
// A thread's columns of a row are, per group of 4 * kRun keys, kRun consecutive keys: key
// 4 kRun g + kRun q + 2 j + e stands in column 4 kRun g + 8 j + 2 q + e (q = lane % 4).
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "asynct/gate.cuh"

namespace asynct::bench {

// Gates the scores in place. `carry` holds, in the first lane of a quad, r of the last two keys of
// the row's previous group; zeros before the first key.
template <int kRun, int kScores>
__device__ __forceinline__ void gate_scores(float (&s)[kScores], const Gate& gate,
                                            GateLeft (&carry)[2]) {
  constexpr int kPairs = kRun / 2;
  const int lane = threadIdx.x % 32;
  const int left_lane = (lane & ~3) | ((lane + 3) & 3);
#pragma unroll
  for (int group = 0; group < kScores / 4 / kPairs; ++group) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float* run = s + group * kPairs * 4 + 2 * h;
      const float* last = run + (kPairs - 1) * 4;
      const GateLeft own = gate_left(last[1], last[0]);
      const GateLeft got = {__shfl_sync(~0u, own.r1, left_lane),
                            __shfl_sync(~0u, own.r2, left_lane)};
      GateLeft left = lane % 4 == 0 ? carry[h] : got;
      carry[h] = got;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        gate_pair(gate, run[4 * pair], run[4 * pair + 1], left);
      }
    }
  }
}

// Zeroes p of keys that the query may not see. `seen[h]` is the number of the tile's keys, counted
// from its first, that the thread's row h sees (possibly none or all).
template <int kRun, int kScores>
__device__ __forceinline__ void mask_scores(float (&p)[kScores], const int (&seen)[2]) {
  constexpr int kPairs = kRun / 2;
  const int first = threadIdx.x % 4 * kRun;
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const int column_group = i / 4;
    const int key = column_group / kPairs * 4 * kRun + column_group % kPairs * 2 + i % 2;
    if (key + first >= seen[i / 2 % 2]) p[i] = 0.0f;
  }
}

// Accumulators to the A fragments of the product with V.
template <int kScores>
__device__ __forceinline__ void pack_scores(const float (&p)[kScores],
                                            uint32_t (&fragments)[kScores / 8][4]) {
#pragma unroll
  for (int i = 0; i < kScores; i += 2) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(p[i], p[i + 1]);
    fragments[i / 8][i / 2 % 4] = reinterpret_cast<const uint32_t&>(pair);
  }
}

}  // namespace asynct::bench
