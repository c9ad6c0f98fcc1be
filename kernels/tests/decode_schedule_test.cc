// How a decode step's work is shared out: every page of a segment has one warp, in order, so that
// the newest key of a request has one in all; what lengths of segments cost; and the parts of a
// workspace neither overlap nor overrun.

#include "asynct/decode_schedule.h"

#include <algorithm>
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
}

// The newest key is written during the launch: one warp of one segment may read it, and nobody
// reads it as a key before its first page, of which the gate's window wants some.
void CheckNewestKey(int length, int segment_keys) {
  int readers = 0;
  const int segments = asynct::SegmentsOf(length, segment_keys);
  for (int segment = 0; segment < segments; ++segment) {
    const int first_key = segment * segment_keys;
    const int keys = std::min(segment_keys, length - first_key);
    for (int warp = 0; warp < asynct::kDecodeWarps; ++warp) {
      const auto range = asynct::WarpPages(asynct::CeilDiv(keys, asynct::kPageKeys), warp);
      if (range.count == 0) continue;
      const int begin = first_key + range.first * asynct::kPageKeys;
      const int end = std::min(begin + range.count * asynct::kPageKeys, first_key + keys);
      Expect(begin <= length - 1, "no newest key before a page", length, begin);
      if (begin <= length - 1 && length - 1 < end) {
        ++readers;
        Expect(end == length && segment + 1 == segments, "the last of the last", length, end);
      }
    }
  }
  Expect(readers == 1, "one warp", length, readers);
}

// The length that the schedule's kernel takes for requests of `length` keys on 33 blocks.
int Chosen(int requests, int length) {
  int best = asynct::kMaxSegmentKeys;
  int64_t least = INT64_MAX;
  for (int keys = best; keys > 0; keys -= asynct::kSegmentStep) {
    const int64_t segments = int64_t{requests} * asynct::SegmentsOf(length, keys);
    const int64_t cost = asynct::StepCost(segments, keys, length, 33);
    if (cost < least) {
      least = cost;
      best = keys;
    }
  }
  return best;
}

void CheckChoice() {
  // What was fastest on an H200.
  const int measured[][3] = {{1, 1024, 128}, {1, 4096, 128}, {8, 1024, 256}, {8, 4096, 1024}};
  for (const auto& [requests, length, keys] : measured) {
    Expect(Chosen(requests, length) == keys, "the fastest", length, Chosen(requests, length));
  }
  for (int requests : {1, 8, 32, 128}) {
    Expect(Chosen(requests, 256) >= 256, "short ones whole", requests, Chosen(requests, 256));
  }
  for (int requests : {32, 40, 128}) {
    Expect(Chosen(requests, 1024) >= 1024, "many whole", requests, Chosen(requests, 1024));
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
  const bool split = capacity > shape.requests;
  const int64_t partials = capacity * shape.heads * shape.head_dim * 4;
  expect(layout.bytes == layout.partials + (split ? partials : 0), "partials");
}

}  // namespace

int main() {
  CheckPages();
  CheckSegments();
  CheckChoice();
  for (int segment_keys : {16, 48, 128, 1024}) {
    for (int length = 1; length < 2100; ++length) CheckNewestKey(length, segment_keys);
  }
  for (int requests : {1, 7, 512}) {
    for (int max_seq_len : {0, 1, 1024, 1025, 131072}) {
      for (int ratio : {1, 2, 4, 5, 16}) {
        for (int segment_keys : {0, 1024}) {
          CheckWorkspace({requests, 2 * ratio, 2, 256, max_seq_len, segment_keys});
        }
      }
    }
  }
  static_assert(asynct::HeadGroups(16, 8) == 8 && asynct::HeadGroups(16, 1) == 4);
  if (failures == 0) std::printf("decode schedules are sound\n");
  return failures == 0 ? 0 : 1;
}
