// Where things stand in a tile of the mma prefill: keys, scores, 16-byte chunks, packed rows.
#pragma once

namespace asynct::prefill_mma {

inline constexpr int kTileKeys = 64;
inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;

// Consecutive keys that one thread scores of a tile, for each of its rows.
inline constexpr int kRun = kTileKeys / 4;

// The key of a tile that stands in row `row` of its keys and of its values, and so in column `row`
// of the scores. mma gives lane 4g + t the columns 8n + 2t and 8n + 2t + 1: in this order these are
// keys 16t to 16t + 15, so that most of the window's neighbours are in the same thread.
constexpr int KeyOfRow(int row) { return row % 8 / 2 * kRun + row / 8 * 2 + row % 2; }

// The place of 16-byte chunk `chunk` of row `row`, in chunks: eight rows of one chunk, which
// ldmatrix reads at a time, lie in different banks.
constexpr int ChunkAt(int row, int chunk, int row_chunks) {
  return row * row_chunks + (chunk ^ (row & 7));
}

// The place of the chunk `rows` and `chunks` further on than the one at `place`, for constants
// whose bits are not set in that one's row and chunk: one xor and one add, where ChunkAt takes
// several.
constexpr int ChunkFrom(int place, int rows, int chunks, int row_chunks) {
  return (place ^ chunks ^ (rows & 7)) + rows * row_chunks;
}

// The query heads of a KV head are packed into the rows: row r of a request is head r % group of
// its query token r / group. Row blocks of `block_rows`, the last (and heaviest) first.
struct RowBlocks {
  int rows;
  int block_rows;

  constexpr int count() const { return (rows + block_rows - 1) / block_rows; }
  constexpr int first_row(int index) const { return (count() - 1 - index) * block_rows; }
};

}  // namespace asynct::prefill_mma
