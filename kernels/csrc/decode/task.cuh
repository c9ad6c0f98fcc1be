// What the decode kernel is told, and what of it a block takes.
#pragma once

#include "pages.cuh"

namespace asynct::decode {

// The grid is [parts of a KV head's query heads, KV heads, stretches]: a block has one group of
// heads, and of the list every gridDim.z-th segment from blockIdx.z on.
struct DecodeParams {
  AttentionParams attention;
  DecodeSchedule schedule;
  CacheRows key;
  CacheRows value;
  int ratio;    // query heads of a KV head
  RawStep raw;  // no slot_mapping: the queries are to be used as they are, the cache has all keys

  __device__ __forceinline__ bool is_raw() const { return raw.fresh.slot_mapping != nullptr; }
};

// Up to kGroupHeads query heads of one KV head.
struct HeadGroup {
  int kv_head;
  int first;  // head
  int heads;
};

__device__ __forceinline__ HeadGroup head_group(const DecodeParams& p) {
  const int kv_head = blockIdx.y;
  const int first = blockIdx.x * kGroupHeads;
  return {kv_head, kv_head * p.ratio + first, min(kGroupHeads, p.ratio - first)};
}

__device__ __forceinline__ DecodeSegment load_segment(const DecodeParams& p, int listed) {
  const int4 words = __ldg(reinterpret_cast<const int4*>(p.schedule.segments + listed));
  return reinterpret_cast<const DecodeSegment&>(words);
}

// This warp's pages of a segment.
__device__ __forceinline__ PageRun page_run(const DecodeParams& p, const DecodeSegment& segment,
                                            int segment_keys) {
  const int first_key = segment.index * segment_keys;
  const int keys = min(segment_keys, segment.length - first_key);
  const PageRange range =
      WarpPages((keys + kPageKeys - 1) / kPageKeys, static_cast<int>(threadIdx.x) / 32);
  const int first_page = first_key / kPageKeys + range.first;
  const int block_pages = p.attention.cache.block_size / kPageKeys;
  const int32_t* table = p.attention.block_table + segment.request * p.attention.table_stride;
  const auto place = [&](int page) {
    return PagePlace::pack(table[page / block_pages], page % block_pages);
  };
  PageRun run;
  if (range.count == 0) return run;
  const int keys_left = keys - range.first * kPageKeys;
  run.keys = min(keys_left, range.count * kPageKeys);
  const bool has_last = segment.index + 1 == segment.count && run.keys == keys_left;
  const bool has_newest = has_last && p.is_raw() && p.raw.fresh.slot_mapping[segment.token] >= 0;
  run.cached = run.keys - has_newest;
  if (lane_id() < range.count) run.lane_place = place(first_page + lane_id());
  if (first_page > 0) run.place_before = place(first_page - 1);
  return run;
}

}  // namespace asynct::decode
