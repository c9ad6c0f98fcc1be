// How a decode step's work is shared out. Every request's keys are cut into segments of one length;
// a kernel chooses it, if the caller has not, and lists the segments on the device, once a step,
// for all layers. A block of the attention kernel takes one segment and one group of query heads at
// a time, and its warps share the segment's pages. So the grid never depends on the lengths.
#pragma once

#include <algorithm>
#include <cstdint>

#include "asynct/row_grid.h"

namespace asynct {

inline constexpr int kPageKeys = 16;   // of a page, what a warp takes at a time
inline constexpr int kGroupHeads = 4;  // query heads of one KV head that are computed at once
inline constexpr int kDecodeWarps = 8;
// Each lane of a warp holds the place of one page.
inline constexpr int kMaxSegmentKeys = kDecodeWarps * 32 * kPageKeys;

// One segment of one request; its keys are index * segment_keys .. min((index + 1) * segment_keys,
// length) - 1. The segments of a request stand side by side in the list, in order; a request
// without keys has one, one without a query has none.
struct alignas(16) DecodeSegment {
  int32_t request;
  int32_t token;   // row of the query and of the output
  int32_t length;  // keys of the request
  uint16_t index;  // among the request's segments
  uint16_t count;  // of them
};
inline constexpr int kMaxSegments = 65535;  // of a request

struct alignas(8) DecodeCount {
  int32_t segments;       // in the list
  uint16_t segment_keys;  // of a segment
  uint16_t split;         // whether a request has more than one
};

struct DecodeShape {
  int requests;
  int heads;
  int kv_heads;
  int head_dim;
  int max_seq_len;
  int segment_keys;  // a multiple of kPageKeys, at most kMaxSegmentKeys; 0: chosen by the lengths
};

// Where a step's list and the layers' sums lie. HP1DecodeSchedule writes `count`, `segments` and
// `finished`; the attention kernel leaves `finished` as it found it.
struct DecodeSchedule {
  DecodeCount* count;       // [1]
  DecodeSegment* segments;  // [SegmentCapacity]
  int32_t* finished;        // [requests, head groups]: segments whose sums are there, zero at first
  float* partials;          // [SegmentCapacity, heads, head_dim]: sums of the segments
};

constexpr int SegmentsOf(int length, int segment_keys) {
  return length <= segment_keys ? 1 : (length - 1) / segment_keys + 1;
}

// The lengths of segments that are tried: multiples of this, up to kMaxSegmentKeys.
inline constexpr int kSegmentStep = kDecodeWarps * kPageKeys;
// Segments for which there is room besides one for every kMaxSegmentKeys keys: about as many as
// there are blocks on a card, of one group of heads.
inline constexpr int kSpareSegments = 512;

constexpr int64_t SegmentCapacity(const DecodeShape& shape) {
  const bool chosen = shape.segment_keys == 0;
  const int keys = chosen ? kMaxSegmentKeys : shape.segment_keys;
  const int spare = chosen && shape.max_seq_len > kSegmentStep ? kSpareSegments : 0;
  return spare + int64_t{shape.requests} * SegmentsOf(shape.max_seq_len, keys);
}

constexpr int HeadGroups(int heads, int kv_heads) {
  return kv_heads * ((heads / kv_heads - 1) / kGroupHeads + 1);
}

// Blocks that share a multiprocessor, which sets the registers a thread may have: a page of K, one
// of V and the sums have to find room.
constexpr int DecodeResidents(int head_dim) { return head_dim <= 128 ? 2 : 1; }

// Blocks of a group of heads, which take the segments in turn.
constexpr int Stretches(const DecodeShape& shape, int multiprocessors) {
  const int resident = DecodeResidents(shape.head_dim) * multiprocessors;
  const int64_t all = std::max(resident / HeadGroups(shape.heads, shape.kv_heads), 1);
  return static_cast<int>(std::min(all, SegmentCapacity(shape)));
}

// About how long a step takes, in keys that a block reads while all are busy, from times measured
// on an H200. The fewer blocks are left in the last round the faster they are, up to three times. A
// segment's end costs a block as much as kEndKeys, and the addition of a request's kSumKeys.
inline constexpr int kEndKeys = 120;
inline constexpr int kSumKeys = 112;
constexpr int64_t StepCost(int64_t segments, int segment_keys, int longest, int stretches) {
  const int64_t keys = std::min(segment_keys, longest);
  const int64_t left = segments % stretches;
  const int64_t last_round = left == 0 ? 0 : keys * (stretches + 2 * left) / (3 * stretches);
  return segments / stretches * keys + last_round + CeilDiv(segments, stretches) * kEndKeys +
         (longest > segment_keys ? kSumKeys : 0);
}

// The pages first .. first + count - 1 of a segment.
struct PageRange {
  int first;
  int count;
};

// What warp `warp` takes of a segment of `pages` pages: the same number for each but the last ones.
constexpr PageRange WarpPages(int pages, int warp) {
  const int share = (pages + kDecodeWarps - 1) / kDecodeWarps;
  const int first = std::min(warp * share, pages);
  return {first, std::min(share, pages - first)};
}

// Byte offsets into a workspace that is aligned to 16 bytes, and its size.
struct DecodeWorkspace {
  int64_t count;
  int64_t segments;
  int64_t finished;
  int64_t partials;
  int64_t bytes;
};

constexpr DecodeWorkspace LayOutDecode(const DecodeShape& shape) {
  const auto aligned = [](int64_t bytes) { return CeilDiv(bytes, 16) * 16; };
  const int64_t capacity = SegmentCapacity(shape);
  const bool split = capacity > shape.requests;  // else every segment is its request's only one
  DecodeWorkspace layout{};
  layout.segments = layout.count + 16;
  layout.finished = layout.segments + capacity * int64_t{sizeof(DecodeSegment)};
  layout.partials = layout.finished + aligned(int64_t{shape.requests} *
                                              HeadGroups(shape.heads, shape.kv_heads) * 4);
  layout.bytes =
      layout.partials + (split ? capacity * shape.heads * shape.head_dim * int64_t{4} : 0);
  return layout;
}

inline DecodeSchedule PlaceDecodeSchedule(void* workspace, const DecodeShape& shape) {
  const DecodeWorkspace layout = LayOutDecode(shape);
  char* base = static_cast<char*>(workspace);
  return {reinterpret_cast<DecodeCount*>(base + layout.count),
          reinterpret_cast<DecodeSegment*>(base + layout.segments),
          reinterpret_cast<int32_t*>(base + layout.finished),
          reinterpret_cast<float*>(base + layout.partials)};
}

}  // namespace asynct
