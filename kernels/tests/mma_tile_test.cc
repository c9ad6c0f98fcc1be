// The mma prefill's maps: which key stands where, and where its chunks lie in shared memory.

#include "asynct/mma_tile.h"

#include <cstdio>
#include <set>
#include <vector>

namespace {

using namespace asynct::prefill_mma;

int failures = 0;

void Expect(bool condition, const char* what, int a, int b) {
  if (condition) return;
  std::printf("%s: %d, %d\n", what, a, b);
  ++failures;
}

// The columns of the scores that lane t of each four holds are its run of consecutive keys, in
// order.
void CheckRuns() {
  std::set<int> keys;
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < kRun; ++i) {
      const int column = i / 2 * 8 + 2 * t + i % 2;
      Expect(KeyOfRow(column) == kRun * t + i, "key of lane, place", t, i);
      keys.insert(KeyOfRow(column));
    }
  }
  Expect(keys.size() == kTileKeys && *keys.begin() == 0 && *keys.rbegin() == kTileKeys - 1,
         "every key in one row", static_cast<int>(keys.size()), 0);
}

// No two chunks in one place; eight rows of one chunk, as ldmatrix reads them, in eight banks of 16
// bytes.
void CheckPlaces(int row_chunks) {
  std::vector<int> used(kTileKeys * row_chunks);
  for (int row = 0; row < kTileKeys; ++row) {
    for (int chunk = 0; chunk < row_chunks; ++chunk) {
      const int place = ChunkAt(row, chunk, row_chunks);
      Expect(place / row_chunks == row && !used.at(place)++, "place of row, chunk", row, chunk);
    }
  }
  for (int row = 0; row < kTileKeys; row += 8) {
    for (int chunk = 0; chunk < row_chunks; ++chunk) {
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) banks.insert(ChunkAt(row + i, chunk, row_chunks) % 8);
      Expect(banks.size() == 8, "bank conflict at row, chunk", row, chunk);
    }
  }
}

// ChunkFrom is ChunkAt where the bits of the two rows and of the two chunks do not meet.
void CheckSteps(int row_chunks) {
  for (int row = 0; row < kTileKeys; ++row) {
    for (int rows = 0; rows < kTileKeys; ++rows) {
      if (row & rows) continue;
      for (int chunk = 0; chunk < row_chunks; ++chunk) {
        for (int chunks = 0; chunks < row_chunks; ++chunks) {
          if (chunk & chunks) continue;
          const int place = ChunkFrom(ChunkAt(row, chunk, row_chunks), rows, chunks, row_chunks);
          Expect(place == ChunkAt(row + rows, chunk + chunks, row_chunks), "step to row, chunk",
                 row + rows, chunk + chunks);
        }
      }
    }
  }
}

// Every row of a request is in one block, the last rows in the first.
void CheckBlocks(int rows, int block_rows) {
  const RowBlocks blocks{rows, block_rows};
  int covered = 0;
  for (int i = blocks.count() - 1; i >= 0; --i) {
    Expect(blocks.first_row(i) == covered, "first row of block", i, rows);
    covered += block_rows;
  }
  Expect(covered >= rows && covered - block_rows < rows, "blocks of rows", covered, rows);
  Expect(blocks.first_row(blocks.count()) < 0, "no further block", blocks.count(), rows);
}

}  // namespace

int main() {
  CheckRuns();
  for (const int row_chunks : {8, 16, 32}) {  // head sizes 64, 128, 256
    CheckPlaces(row_chunks);
    CheckSteps(row_chunks);
  }
  for (const int block_rows : {64, 128}) {
    for (const int rows : {0, 1, 63, 64, 65, 127, 128, 129, 1000, 8192 * 16}) {
      CheckBlocks(rows, block_rows);
    }
  }
  return failures == 0 ? 0 : 1;
}
