// The gate of four neighbouring keys, as the decode kernel's lanes hold them.
#pragma once

#include "asynct/gate.cuh"

namespace asynct::decode {

struct FastKeysGate {
  static constexpr int kLeft = 2;  // keys to the left that the window reaches
  Gate gate;

  __device__ __forceinline__ void set(const GateParams& params, int head, float scale) {
    gate = make_gate(params.sigma[head], params.alpha[head], scale, params.weights[0]);
  }
  // Turns the raw scores `s` into p; `left` are those of the keys before, the nearest first.
  __device__ __forceinline__ void apply(float (&s)[4], const float (&left)[kLeft]) const {
    GateLeft r = gate_left(left[0], left[1]);
    gate_pair(gate, s[0], s[1], r);
    gate_pair(gate, s[2], s[3], r);
  }
};

struct GeneralKeysGate {
  static constexpr int kLeft = kMaxWindow - 1;
  GeneralGate gate;

  __device__ __forceinline__ void set(const GateParams& params, int head, float scale) {
    gate = make_general_gate(params, head, scale);
  }
  __device__ __forceinline__ void apply(float (&s)[4], const float (&left)[kLeft]) const {
    GeneralLeft r;
#pragma unroll
    for (int m = 0; m < kLeft; ++m) r.r[m] = gate_r(gate, left[m]);
#pragma unroll
    for (float& score : s) score = gate_one(gate, score, r);
  }
};

}  // namespace asynct::decode
