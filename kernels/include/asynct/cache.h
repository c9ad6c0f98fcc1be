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

// Key and value j of request r go to row r * request_rows + j of the copies; the rows from there to
// the next multiple of `row_multiple` become zeros. What an fp8 cache stores is converted exactly,
// without its scale, which is left to who reads the copies.
struct PageGatherParams {
  DataType dtype;  // of the copies: kFloat16 or kBFloat16, the cache's if that is not fp8
  PagedCache cache;
  const int32_t* block_table;  // [requests, table_stride]
  int64_t table_stride;
  const int32_t* seq_lens;  // [requests]
  int requests;
  int kv_heads;
  int head_dim;
  int max_seq_len;
  void* key;  // [requests, request_rows, kv_heads, head_dim], contiguous
  void* value;
  int64_t request_rows;  // a multiple of row_multiple, at least max_seq_len
  int row_multiple;
};

}  // namespace asynct
