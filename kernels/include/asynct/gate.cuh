// The AsyncI gate, instance K = 3, equal weights, relu_pre, clip 0..1, alpha >= 0:
//
//   t_j = alpha * scale * (q . k_j)          r_j = max(t_j, 0)
//   p_j = clamp(t_j - sigma / 3 * (r_j + r_{j-1} + r_{j-2}), 0, 1)
//
// Multiplying the score by alpha first is the same function, since alpha >= 0 passes through the
// max. gamma is left to the epilogue: it scales the whole output row.
#pragma once

namespace asynct {

struct Gate {
  float score;   // alpha * scale
  float window;  // sigma / 3
};

// r of the two keys to the left of a key, the nearer one first.
struct GateLeft {
  float r1;
  float r2;
};

__device__ __forceinline__ GateLeft gate_left(const Gate& gate, float score1, float score2) {
  return {fmaxf(gate.score * score1, 0.0f), fmaxf(gate.score * score2, 0.0f)};
}

// Turns the raw scores of two neighbouring keys into p and moves `left` past them. r_0 + r_{-1}
// serves both windows, so a pair costs three adds.
__device__ __forceinline__ void gate_pair(const Gate& gate, float& s0, float& s1, GateLeft& left) {
  const float t0 = gate.score * s0;
  const float t1 = gate.score * s1;
  const float r0 = fmaxf(t0, 0.0f);
  const float r1 = fmaxf(t1, 0.0f);
  const float shared = r0 + left.r1;
  s0 = __saturatef(fmaf(-gate.window, shared + left.r2, t0));
  s1 = __saturatef(fmaf(-gate.window, shared + r1, t1));
  left = {r1, r0};
}

}  // namespace asynct
