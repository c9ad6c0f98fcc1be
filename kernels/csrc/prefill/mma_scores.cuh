// A tile of scores in registers, 16 rows by 64 keys of a warp: gate, mask, packing.
//
// Score 4 * n + 2 * half + e of lane 4g + t is row g + 8 * half, key KeyOfRow(8 * n + 2 * t + e):
// of each of its two rows a thread has a run of 16 keys, and needs from the left only what precedes
// it.
#pragma once

#include <cstdint>

#include "asynct/gate.cuh"
#include "asynct/mma_tile.h"
#include "asynct/vector.cuh"

namespace asynct::prefill_mma {

inline constexpr int kScores = kTileKeys / 2;  // of a thread

// The two forms of the gate, over a run of keys.
struct FastForm {
  using Gate = asynct::Gate;
  using Left = GateLeft;

  static __device__ __forceinline__ Gate Make(const GateParams& gate, int head, float scale) {
    return make_gate(gate.sigma[head], gate.alpha[head], scale, gate.weights[0]);
  }
  static __device__ __forceinline__ Left LeftOfNext(const Gate&, const float (&run)[kRun]) {
    return gate_left(run[kRun - 1], run[kRun - 2]);
  }
  static __device__ __forceinline__ Left Shuffle(const Left& left, int lane) {
    return {__shfl_sync(~0u, left.r1, lane), __shfl_sync(~0u, left.r2, lane)};
  }
  static __device__ __forceinline__ void Apply(const Gate& gate, float (&run)[kRun], Left left) {
#pragma unroll
    for (int i = 0; i < kRun; i += 2) gate_pair(gate, run[i], run[i + 1], left);
  }
};

struct GeneralForm {
  using Gate = GeneralGate;
  using Left = GeneralLeft;

  static __device__ __forceinline__ Gate Make(const GateParams& gate, int head, float scale) {
    return make_general_gate(gate, head, scale);
  }
  static __device__ __forceinline__ Left LeftOfNext(const Gate& gate, const float (&run)[kRun]) {
    Left left;
#pragma unroll
    for (int m = 0; m < kMaxWindow - 1; ++m) left.r[m] = gate_r(gate, run[kRun - 1 - m]);
    return left;
  }
  static __device__ __forceinline__ Left Shuffle(Left left, int lane) {
#pragma unroll
    for (float& r : left.r) r = __shfl_sync(~0u, r, lane);
    return left;
  }
  static __device__ __forceinline__ void Apply(const Gate& gate, float (&run)[kRun], Left left) {
#pragma unroll
    for (float& score : run) score = gate_one(gate, score, left);
  }
};

// What a thread knows of one of its rows.
template <class Form>
struct Row {
  typename Form::Gate gate;
  typename Form::Left carry;  // in lane t = 0: of the keys before the tile
};

// Scores become p, but for the mask.
template <class Form>
__device__ __forceinline__ void GateScores(float (&s)[kScores], Row<Form> (&rows)[2]) {
  const int lane = threadIdx.x % 32;
  const int before = (lane & ~3) | ((lane + 3) & 3);  // lane t = 0 asks for the tile's last keys
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Row<Form>& row = rows[half];
    float run[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) run[i] = s[i / 2 * 4 + 2 * half + i % 2];
    const auto got = Form::Shuffle(Form::LeftOfNext(row.gate, run), before);
    const auto left = lane % 4 == 0 ? row.carry : got;
    row.carry = got;
    Form::Apply(row.gate, run, left);
#pragma unroll
    for (int i = 0; i < kRun; ++i) s[i / 2 * 4 + 2 * half + i % 2] = run[i];
  }
}

// Zeroes p of the keys that a row does not see, whatever p is. Row r of the 16 sees the keys up to
// positions[r]; `first_key` is the tile's.
__device__ __forceinline__ void MaskScores(float (&p)[kScores], const int* positions,
                                           int first_key) {
  const int lane = threadIdx.x % 32;
  const int first = first_key + KeyOfRow(lane % 4 * 2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = positions[8 * half + lane / 4];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (first + i > position) p[i / 2 * 4 + 2 * half + i % 2] = 0.0f;
    }
  }
}

// Accumulators, rounded to T, as the A operands of the product with V.
template <class T>
__device__ __forceinline__ void PackScores(const float (&p)[kScores],
                                           uint32_t (&fragments)[kScores / 8][4]) {
#pragma unroll
  for (int i = 0; i < kScores; i += 2) {
    const auto pair = PairOf<T>::Round(p[i], p[i + 1]);
    fragments[i / 8][i / 2 % 4] = reinterpret_cast<const uint32_t&>(pair);
  }
}

}  // namespace asynct::prefill_mma
