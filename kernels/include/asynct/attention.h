// What a launch of AsyncI attention is told, in plain structs. Strides count elements; the D
// elements of a head are adjacent. Pointers are on the device.
#pragma once

#include <cstdint>

#include "asynct/params.h"

namespace asynct {

inline constexpr int kMaxWindow = 8;

// p_j = gamma * clamp(alpha * (s_j - sigma * sum_m weights[m] * r_{j-m}), clip_min, clip_max), with
// s = scale * (q . k) and r = relu_pre ? max(s, 0) : s
struct GateParams {
  const float* sigma;  // [heads], as alpha and gamma; of any sign
  const float* alpha;
  const float* gamma;
  float scale;
  int window;  // 1 to kMaxWindow
  float weights[kMaxWindow];  // zeros past the window
  bool relu_pre;
  float clip_min;
  float clip_max;
};

// K or V of a paged cache: [num_blocks, block_size, kv_heads, head_dim].
struct CacheView {
  void* data;
  int64_t block_stride;
  int64_t slot_stride;
  int64_t head_stride;
  const float* scale;  // of fp8: value = scale * stored; [1] or [kv_heads]; null for other types
  int scale_stride;    // 0 or 1
};

struct PagedCache {
  DataType dtype;  // the query's, or kFloat8E4M3
  CacheView key;
  CacheView value;
  int block_size;
  int64_t num_blocks;
};

// Requests r own the queries query_start_loc[r] .. query_start_loc[r + 1] - 1 and the keys
// 0 .. seq_lens[r] - 1; the last query stands at the last key. Key j is in slot j % block_size of
// block block_table[r][j / block_size].
struct AttentionParams {
  DataType dtype;   // of query and out: kFloat16 or kBFloat16
  HeadsView query;  // [tokens, heads, head_dim]
  void* out;        // [tokens, heads, head_dim]; rows past query_start_loc[requests] stay
  int64_t out_token_stride;
  int64_t out_head_stride;
  PagedCache cache;
  const int32_t* block_table;  // [requests, table_stride]
  int64_t table_stride;
  const int32_t* query_start_loc;  // [requests + 1]
  const int32_t* seq_lens;         // [requests]
  GateParams gate;
  int requests;
  int heads;
  int kv_heads;
  int head_dim;
  int max_query_len;  // bounds of this launch, or of every replay of a captured one
  int max_seq_len;
};

// The step's keys and values as the projection wrote them, and where they go in the cache.
struct FreshKeyValue {
  HeadsView key;  // [tokens, kv_heads, head_dim]
  HeadsView value;
  const int64_t* slot_mapping;  // [tokens]: block * block_size + slot, or -1 for none
};

// A step of one query a request, as the projection wrote it: its queries and keys go through
// norm_rope first. A request's newest key is at position seq_lens[r] - 1.
struct RawStep {
  FreshKeyValue fresh;
  NormRopeParams norm_rope;
};

// Keys and values of whole requests in plain tensors [rows, kv_heads, head_dim]: request r's begin at
// row r * request_rows, or, with 0, where its queries do (then it has no others).
struct KeyValueRows {
  HeadsView key;
  HeadsView value;
  int64_t rows;
  int request_rows;
};

}  // namespace asynct
