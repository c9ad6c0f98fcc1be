// The AsyncI gate (attention.h has the formula), in two forms: a fast one for the usual constants
// and a general one. gamma is left to the epilogue: it scales the whole output row.
//
// Both take raw scores x_j = q . k_j. The fast one factors the constants out of the window:
//
//   alpha * z_j = (alpha * scale) * x_j - (alpha * scale * sigma * w) * (r_j + r_{j-1} + r_{j-2}),
//   r_j = max(x_j, 0),
//
// which holds for every sign of sigma and alpha: only scale >= 0 has to pass through the max.
#pragma once

#include "asynct/attention.h"
#include "asynct/broken.h"

namespace asynct {

// Whether the fast gate computes these: K = 3, equal weights, relu_pre, clip 0..1, scale >= 0.
constexpr bool is_fast_gate(const GateParams& gate) {
  return gate.window == 3 && gate.weights[0] == gate.weights[1] &&
         gate.weights[0] == gate.weights[2] && gate.relu_pre && gate.clip_min == 0.0f &&
         gate.clip_max == 1.0f && gate.scale >= 0.0f;
}

struct Gate {
  float score;   // alpha * scale
  float window;  // alpha * scale * sigma * weight
};

// `scale` is the factor of the raw scores; at least 0.
__device__ __forceinline__ Gate make_gate(float sigma, float alpha, float scale,
                                          float weight = 1.0f / 3.0f) {
  const float score = alpha * scale;
  return {score, kBroken ? 0.0f : score * sigma * weight};
}

// r of the two keys to the left of a key, the nearer one first.
struct GateLeft {
  float r1;
  float r2;
};

__device__ __forceinline__ GateLeft gate_left(float score1, float score2) {
  return {fmaxf(score1, 0.0f), fmaxf(score2, 0.0f)};
}

// Turns the raw scores of two neighbouring keys into p and moves `left` past them. r_0 + r_{-1}
// serves both windows, so a pair costs three adds.
__device__ __forceinline__ void gate_pair(const Gate& gate, float& s0, float& s1, GateLeft& left) {
  const float r0 = fmaxf(s0, 0.0f);
  const float r1 = fmaxf(s1, 0.0f);
  const float shared = r0 + left.r1;
  s0 = __saturatef(fmaf(-gate.window, shared + left.r2, gate.score * s0));
  s1 = __saturatef(fmaf(-gate.window, shared + r1, gate.score * s1));
  left = {r1, r0};
}

// Any window, weights, relu_pre, clip and scale. What is the same for all heads stays where the
// kernel's parameters are, out of the registers.
struct GeneralGate {
  const GateParams* params;
  float scale;  // of the raw scores
  float sigma;
  float alpha;
};

__device__ __forceinline__ GeneralGate make_general_gate(const GateParams& params, int head,
                                                         float scale) {
  return {&params, scale, kBroken ? 0.0f : params.sigma[head], params.alpha[head]};
}

// r of the keys to the left of a key, the nearest first; zeros before the first key.
struct GeneralLeft {
  float r[kMaxWindow - 1];
};

__device__ __forceinline__ float gate_r(const GeneralGate& gate, float score) {
  const float s = gate.scale * score;
  return gate.params->relu_pre ? fmaxf(s, 0.0f) : s;
}

// p of a key's raw score; moves `left` past it.
__device__ __forceinline__ float gate_one(const GeneralGate& gate, float score, GeneralLeft& left) {
  const GateParams& params = *gate.params;
  const float s = gate.scale * score;
  const float r = gate_r(gate, score);
  float window = params.weights[0] * r;
#pragma unroll
  for (int m = 1; m < kMaxWindow; ++m) window = fmaf(params.weights[m], left.r[m - 1], window);
#pragma unroll
  for (int m = kMaxWindow - 2; m > 0; --m) left.r[m] = left.r[m - 1];
  left.r[0] = r;
  const float z = fmaf(-gate.sigma, window, s);
  return fminf(fmaxf(gate.alpha * z, params.clip_min), params.clip_max);
}

}  // namespace asynct
