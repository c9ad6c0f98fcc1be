// How a decode step's work is shared out: every page of a segment has one warp, in order, and the
// parts of a workspace neither overlap nor overrun.

#include "asynct/decode_schedule.h"

#include <cstdint>
#include <cstdio>

namespace {

int failures = 0;

void Expect(bool condition, const char* what, int64_t a, int64_t b) {
  if (condition) return;
  std::printf("%s: %ld, %ld\n", what, static_cast<long>(a), static_cast<long>(b));
  ++failures;
}

void CheckPages() {
  for (int pages = 0; pages <= asynct::kMaxSegmentKeys / asynct::kPageKeys; ++pages) {
    int next = 0;
    for (int warp = 0; warp < asynct::kDecodeWarps; ++warp) {
      const asynct::PageRange range = asynct::WarpPages(pages, warp);
      Expect(range.count >= 0 && range.count <= 32, "a lane a page", pages, warp);
      Expect(range.count == 0 || range.first == next, "in order", pages, warp);
      next += range.count;
    }
    Expect(next == pages, "every page", pages, next);
  }
}

void CheckSegments() {
  for (int keys : {16, 48, 512, 1024, asynct::kMaxSegmentKeys}) {
    Expect(asynct::SegmentsOf(0, keys) == 1, "one without keys", keys, 0);
    for (int n = 1; n < 5; ++n) {
      for (int length : {n * keys - keys + 1, n * keys - 1, n * keys}) {
        Expect(asynct::SegmentsOf(length, keys) == n, "segments", keys, length);
      }
    }
  }
  int before = 0;
  for (int requests = 1; requests <= 2048; ++requests) {
    const int keys = asynct::SegmentKeys(requests);
    Expect(keys % asynct::kPageKeys == 0, "whole pages", requests, keys);
    Expect(keys <= asynct::kMaxSegmentKeys, "a lane a page", requests, keys);
    Expect(keys >= before, "no shorter in a larger batch", requests, keys);
    before = keys;
  }
}

void CheckWorkspace(const asynct::DecodeShape& shape) {
  const asynct::DecodeWorkspace layout = asynct::LayOutDecode(shape);
  const int64_t capacity = asynct::SegmentCapacity(shape);
  const int64_t groups = asynct::HeadGroups(shape.heads, shape.kv_heads);
  const auto expect = [&](bool condition, const char* what) {
    Expect(condition, what, shape.requests, shape.max_seq_len);
  };
  for (int64_t offset : {layout.count, layout.segments, layout.finished, layout.partials}) {
    expect(offset % 16 == 0, "aligned");
  }
  expect(layout.segments >= layout.count + 4, "count");
  expect(layout.finished >= layout.segments + capacity * 16, "segments");
  expect(layout.partials >= layout.finished + shape.requests * groups * 4, "finished");
  const bool split = shape.max_seq_len > shape.segment_keys;
  const int64_t partials = capacity * shape.heads * shape.head_dim * 4;
  expect(layout.bytes == layout.partials + (split ? partials : 0), "partials");
}

}  // namespace

int main() {
  CheckPages();
  CheckSegments();
  for (int requests : {1, 7, 512}) {
    for (int max_seq_len : {0, 1, 1024, 1025, 131072}) {
      for (int ratio : {1, 2, 4, 5, 16}) {
        CheckWorkspace({requests, 2 * ratio, 2, 256, max_seq_len, 1024});
      }
    }
  }
  static_assert(asynct::HeadGroups(16, 8) == 8 && asynct::HeadGroups(16, 1) == 4);
  if (failures == 0) std::printf("decode schedules are sound\n");
  return failures == 0 ? 0 : 1;
}
