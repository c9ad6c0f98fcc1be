// What the decode kernel is told, and what of it a block takes.
#pragma once

#include "pages.cuh"

namespace asynct::decode {

// The grid is [head groups, stretches]: a block has one group of heads, and of the list every
// gridDim.y-th segment from blockIdx.y on.
struct DecodeParams {
  AttentionParams attention;
  DecodeSchedule schedule;
  CacheRows key;
  CacheRows value;
};

// Up to kGroupHeads query heads of one KV head.
struct HeadGroup {
  int kv_head;
  int first;  // head
  int heads;
};

__device__ __forceinline__ HeadGroup head_group(const AttentionParams& p) {
  const int ratio = p.heads / p.kv_heads;
  const int parts = gridDim.x / p.kv_heads;
  const int kv_head = blockIdx.x / parts;
  const int first = blockIdx.x % parts * kGroupHeads;
  return {kv_head, kv_head * ratio + first, min(kGroupHeads, ratio - first)};
}

__device__ __forceinline__ DecodeSegment load_segment(const DecodeParams& p, int listed) {
  const int4 words = __ldg(reinterpret_cast<const int4*>(p.schedule.segments + listed));
  return reinterpret_cast<const DecodeSegment&>(words);
}

}  // namespace asynct::decode
