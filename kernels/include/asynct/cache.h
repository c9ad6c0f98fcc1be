// What the launches that move keys and values between a paged cache and plain tensors are told.
#pragma once

#include <cstdint>

#include "asynct/attention.h"

namespace asynct {

// Token t's key and value go to slot slot_mapping[t] of the cache; a negative slot is skipped. Into
// an fp8 cache goes value / scale, rounded to nearest even and saturated.
struct CacheWriteParams {
  DataType dtype;  // of the fresh tensors
  FreshKeyValue fresh;
  PagedCache cache;  // of that dtype or kFloat8E4M3
  int64_t tokens;    // of slot_mapping; the fresh tensors may be longer
  int kv_heads;
  int head_dim;
};

// As CacheWriteParams has it, but that the keys go through norm_rope first, as the queries do;
// there may be more tokens than slots.
struct QkNormRopeCacheParams {
  CacheWriteParams write;
  HeadsView query;  // [tokens, heads, head_dim]
  int heads;
  const int64_t* positions;  // [tokens]
  int64_t tokens;
  NormRopeParams norm_rope;
  void* query_out;  // [tokens, heads, head_dim]
  void* key_out;    // [tokens, kv_heads, head_dim]
};

// Where the keys and values of an attention's requests are copied to: key j of request r to row r *
// request_rows + j. The rows from there to the next multiple of `row_multiple` become zeros. The
// copies have the query's type; what an fp8 cache stores is converted exactly, without its scale,
// which is left to who reads them.
struct GatheredPages {
  void* key;  // [requests, request_rows, kv_heads, head_dim], contiguous
  void* value;
  int64_t request_rows;  // a multiple of row_multiple, at least max_seq_len
  int row_multiple;
};

}  // namespace asynct
