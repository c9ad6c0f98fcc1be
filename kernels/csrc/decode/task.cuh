// What the decode kernel is told, and what of it one block takes at a time.
#pragma once

#include "pages.cuh"

namespace asynct::decode {

struct DecodeParams {
  AttentionParams attention;
  DecodeSchedule schedule;
  CacheRows key;
  CacheRows value;
  int ratio;   // query heads of a KV head
  int parts;   // groups that they are computed in
  int groups;  // of all query heads
};

// Up to kGroupHeads query heads of one KV head.
struct HeadGroup {
  int kv_head;
  int first;  // head
  int heads;
};

__device__ __forceinline__ HeadGroup head_group(const DecodeParams& p, int group) {
  const int kv_head = group / p.parts;
  const int first = group % p.parts * kGroupHeads;
  return {kv_head, kv_head * p.ratio + first, min(kGroupHeads, p.ratio - first)};
}

// A segment and a group of query heads.
struct Task {
  DecodeSegment segment;
  int listed;  // the segment's place in the list
  int group;
};

__device__ __forceinline__ Task load_task(const DecodeParams& p, int task) {
  const int listed = task / p.groups;
  const int4 words = __ldg(reinterpret_cast<const int4*>(p.schedule.segments + listed));
  return {{words.x, words.y, words.z, words.w}, listed, task % p.groups};
}

}  // namespace asynct::decode
