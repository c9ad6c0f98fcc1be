// What a launch is told, in plain structs. Strides count elements; outputs are contiguous.
#pragma once

#include <cstdint>

namespace asynct {

enum class DataType { kFloat32, kFloat16, kBFloat16, kFloat8E4M3 };

// A read-only matrix [rows, channels] whose channels are adjacent.
struct RowsView {
  const void* data;
  int64_t row_stride;
};

// A read-only tensor [tokens, heads, head_size] whose last dimension is adjacent.
struct HeadsView {
  const void* data;
  int64_t token_stride;
  int64_t head_stride;
};

// Per-channel values [channels] (stride 1), or one value for all of them [1] (stride 0).
struct Parameter {
  const void* data;
  DataType dtype;  // kFloat32, or the dtype of the activations
  int stride;
};

// DyHT(x) = gamma * clamp(alpha * x, clip_min, clip_max)
struct DyHTParams {
  Parameter alpha;
  Parameter gamma;
  float clip_min;
  float clip_max;
};

// q' = RoPE(DyHT_q(q)) and k' = RoPE(DyHT_k(k)): the channels d and d + head_size / 2 are turned by
// the d-th angle of the token's position.
struct NormRopeParams {
  DyHTParams q;
  DyHTParams k;
  Parameter cos_sin;  // [positions, head_size]: the cosines of the angles, then their sines
};

// y = DyHT(x)
struct UclipNormParams {
  DataType dtype;  // of the activations, here and below
  RowsView x;
  void* y;  // [rows, channels]
  DyHTParams dyht;
  int64_t rows;
  int channels;
};

// new_residual = x + residual;  y = DyHT(new_residual)
struct FusedAddUclipNormParams {
  DataType dtype;
  RowsView x;
  RowsView residual;
  void* y;             // [rows, channels]
  void* new_residual;  // [rows, channels]
  DyHTParams dyht;
  int64_t rows;
  int channels;
};

// The query's or the key's half of QkUclipNormParams.
struct HeadsUclipNormParams {
  HeadsView x;
  void* y;  // [tokens, heads, head_size]
  DyHTParams dyht;
  int heads;
};

// q' = DyHT_q(q);  k' = DyHT_k(k), over head_size channels
struct QkUclipNormParams {
  DataType dtype;
  HeadsUclipNormParams q;
  HeadsUclipNormParams k;
  int64_t tokens;
  int head_size;
};

// new_residual = residual + DyHT_post(x);  y = DyHT_mlp(new_residual)
struct PostAttnPreMlpUclipOutParams {
  DataType dtype;
  RowsView x;
  RowsView residual;
  void* y;             // [rows, channels]
  void* new_residual;  // [rows, channels]
  DyHTParams post;
  DyHTParams mlp;
  int64_t rows;
  int channels;
};

// y = relu(gate) * up
struct ReluAndMulParams {
  DataType dtype;
  RowsView gate_up;  // [rows, 2 * channels], the gate first
  void* y;           // [rows, channels]
  int64_t rows;
  int channels;
};

// y = relu(x gate^T) * (x up^T); bf16 or fp16, all contiguous
struct LinearReluAndMulParams {
  DataType dtype;
  const void* x;       // [rows, depth]
  const void* weight;  // [2 * channels, depth], the gate's rows first
  void* y;             // [rows, channels]
  int rows;
  int channels;
  int depth;
};

// new_residual = residual + DyHT_post(x weight^T);  y = DyHT_mlp(new_residual); bf16 or fp16, all
// contiguous, the parameters in float32
struct LinearAddUclipParams {
  DataType dtype;
  const void* x;         // [rows, depth]
  const void* weight;    // [channels, depth]
  const void* residual;  // [rows, channels]
  void* y;               // [rows, channels]
  void* new_residual;    // [rows, channels]
  DyHTParams post;
  DyHTParams mlp;
  int rows;
  int channels;
  int depth;
};

}  // namespace asynct
