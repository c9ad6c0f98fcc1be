// How a decode step's work is shared out. Every request's keys are cut into segments of one length;
// a kernel lists the segments on the device, once a step, for all layers. A block of the attention
// kernel takes one segment and one group of query heads at a time, and its warps share the
// segment's pages. So the grid never depends on the lengths, nor a request's sums on its
// neighbours.
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
  int32_t segments;  // in the list
  int32_t split;     // whether a request has more than one
};

struct DecodeShape {
  int requests;
  int heads;
  int kv_heads;
  int head_dim;
  int max_seq_len;
  int segment_keys;  // a multiple of kPageKeys, at most kMaxSegmentKeys
};

// Where a step's list and the layers' sums lie. HP1DecodeSchedule writes `count`, `segments` and
// `finished`; the attention kernel leaves `finished` as it found it.
struct DecodeSchedule {
  DecodeCount* count;       // [1]
  DecodeSegment* segments;  // [SegmentCapacity]
  int32_t* finished;        // [requests, head groups]: segments whose sums are there, zero at first
  float* partials;          // [SegmentCapacity, heads, head_dim]: sums of the segments
  int segment_keys;
};

// Keys of a segment for a batch that is padded to `requests`: short ones fill the card where there
// are few requests, long ones have fewer beginnings and ends. Measured at 1, 8, 32 and 128
// requests.
constexpr int SegmentKeys(int requests) {
  return requests <= 1    ? 256
         : requests <= 4  ? 512
         : requests <= 16 ? 1024
         : requests <= 64 ? 2048
                          : 4096;
}

constexpr int SegmentsOf(int length, int segment_keys) {
  return length <= segment_keys ? 1 : (length - 1) / segment_keys + 1;
}

constexpr int64_t SegmentCapacity(const DecodeShape& shape) {
  return int64_t{shape.requests} * SegmentsOf(shape.max_seq_len, shape.segment_keys);
}

constexpr int HeadGroups(int heads, int kv_heads) {
  return kv_heads * ((heads / kv_heads - 1) / kGroupHeads + 1);
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
          reinterpret_cast<float*>(base + layout.partials), shape.segment_keys};
}

}  // namespace asynct
