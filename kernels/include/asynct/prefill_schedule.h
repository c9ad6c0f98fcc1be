// What the row blocks of a prefill by wgmma are, in which order they are worked on, and where the
// keys of a tile stand.
//
// Requests next to each other form a section whose K and V fit the L2 together. Section after
// section, and within one the last row block of every request (it sees the most keys), then every
// last but one, and so on: what is left for the end is light.
#pragma once

#include <cstdint>

namespace asynct::prefill_wgmma {

inline constexpr int kMaxRequests = 4096;
inline constexpr int64_t kSectionBytes = 32 << 20;  // of K and V, about half of the L2

// A row block: neighbouring queries of one request.
struct RowBlock {
  int request;
  int token;     // row of its first query in query and out
  int rows;      // queries, at least 1
  int position;  // of its first query among the request's keys; negative: before the first key
  int keys;      // of the request
};

// At the start of the workspace; the RowBlocks follow.
struct alignas(16) ScheduleHeader {
  int row_blocks;
  int taken;  // works that thread blocks have taken, the first of each aside
};

// Requests as the scheduling block holds them in shared memory.
struct Requests {
  int count;
  const int* first_block;    // [count + 1]: row blocks of the requests before; the last: of all
  const int* section_start;  // [count]: the first request of the section that a request is in
};

constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }

constexpr int RowBlocksOf(int queries, int row_block) { return CeilDiv(queries, row_block); }

// At most as many as there are, for what the host knows.
constexpr int64_t MostRowBlocks(int64_t tokens, int requests, int row_block) {
  return tokens / row_block + requests;
}

// A multiple of 16.
constexpr int64_t WorkspaceBytes(int64_t tokens, int requests, int row_block) {
  const int64_t blocks = MostRowBlocks(tokens, requests, row_block) * sizeof(RowBlock);
  return sizeof(ScheduleHeader) + (blocks + 15) / 16 * 16;
}

// Keys of a section, all KV heads together, 16-bit elements.
constexpr int SectionKeys(int kv_heads, int head_dim) {
  return static_cast<int>(kSectionBytes / (int64_t{kv_heads} * head_dim * 4));
}

// The request that row block number `index` (request after request) belongs to.
constexpr int RequestOf(const Requests& requests, int index) {
  int low = 0;
  int high = requests.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (requests.first_block[middle] <= index) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// When it is the turn of the row block that has `later` blocks of its request after it.
constexpr int TurnOf(const Requests& requests, int request, int later) {
  const int start = requests.section_start[request];
  int turn = requests.first_block[start];
  for (int r = start; r < requests.count && requests.section_start[r] == start; ++r) {
    const int blocks = requests.first_block[r + 1] - requests.first_block[r];
    const int before = r < request ? later + 1 : later;
    turn += blocks < before ? blocks : before;
  }
  return turn;
}

// Row block number `within` of a request.
constexpr RowBlock MakeRowBlock(int request, int first_query, int queries, int keys, int within,
                                int row_block) {
  const int row = within * row_block;
  const int rows = queries - row < row_block ? queries - row : row_block;
  return {request, first_query + row, rows, keys - queries + row, keys};
}

// Key tiles that a row block sees; 1 at least, in which everything may be masked.
constexpr int TilesOf(const RowBlock& block, int tile_keys) {
  const int end = block.position + block.rows;
  return end > tile_keys ? CeilDiv(end, tile_keys) : 1;
}

// The row of shared memory for key `key` of a tile, when a thread owns `run` consecutive keys of
// each 4 * run: key 4 run g + run q + 2 j + e stands in row 4 run g + 8 j + 2 q + e.
constexpr int TileRowOf(int key, int run) {
  const int within = key % (4 * run);
  const int thread = within / run;
  const int place = within % run;
  return key - within + place / 2 * 8 + thread * 2 + place % 2;
}

}  // namespace asynct::prefill_wgmma
