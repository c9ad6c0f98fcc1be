// What one launch of a decode bench kernel is told. decode_kernels.py mirrors them.
#pragma once

#include <cstdint>

namespace asynct::bounds {

constexpr int kHeadSize = 128;
constexpr int kPageKeys = 16;
constexpr int kRowBytes = 256;  // one key or value of one head, bf16
constexpr int kVectorBytes = 16;

// A segment: a run of keys of one request that one block (per KV head) works on. The segments of a
// request stand side by side in the work list, in order; a request of length 0 has one, empty. The
// list is read on the device, so that the grid need not depend on the lengths.
struct WorkItem {
  int32_t request;    // negative past the end of the list
  int32_t first_key;  // a multiple of Params::segment_keys
  int32_t end_key;    // past the segment's last key
  int32_t length;     // keys of the request
};

struct Params {
  const void* query;           // bf16 [requests, kv_heads * group, 128]
  const void* k_cache;         // bf16 [blocks, 16, kv_heads, 128], the first dimension strided
  const void* v_cache;         // likewise, same strides
  int64_t block_stride;        // bytes
  const int32_t* block_table;  // [requests, table_width]
  int64_t table_width;
  const WorkItem* work;       // [work_capacity]
  int64_t work_capacity;
  float* partials;            // [work_capacity, kv_heads, group, 128]
  int32_t* finished;          // [requests, kv_heads], zero before a launch and after it
  float* out;                 // [requests, kv_heads * group, 128], not rounded
  const float* sigma;         // [kv_heads * group]
  const float* alpha;         // [kv_heads * group], not negative
  const float* gamma;         // [kv_heads * group]
  float scale;
  uint32_t keep_below;  // bytes kernels: the V row is read where the K row's hash is below this
  int32_t kv_heads;
  int32_t segment_keys;
};

}  // namespace asynct::bounds
