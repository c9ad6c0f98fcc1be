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
  int ratio;  // query heads of a KV head
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

}  // namespace asynct::decode
