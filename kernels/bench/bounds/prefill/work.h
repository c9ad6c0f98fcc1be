// The order of work: a work item is one row block of one group of query heads of one request.
#pragma once

namespace asynct::bench {

struct Shape {
  int batch;
  int length;        // queries and keys of a request (no prefix)
  int heads;
  int kv_heads;
  int row_block;     // query positions of a work item
  int head_group;    // query heads of a work item
  int section;       // head groups whose K and V share the L2 at a time

  constexpr int row_blocks() const { return (length + row_block - 1) / row_block; }
  constexpr int groups() const { return batch * (heads / head_group); }
  constexpr int works() const { return row_blocks() * groups(); }
};

struct Work {
  int request;
  int head;     // the first of the group
  int kv_head;
  int row;      // the first query position
};

// Section after section; within one, the heavy (late) row blocks first, and heads that share K and
// V side by side.
constexpr Work work_at(const Shape& shape, int index) {
  const int per_section = shape.section * shape.row_blocks();
  const int first = index / per_section * shape.section;
  const int rest = shape.groups() - first;
  const int width = rest < shape.section ? rest : shape.section;
  const int within = index % per_section;
  const int group = first + within % width;
  const int per_request = shape.heads / shape.head_group;
  const int head = group % per_request * shape.head_group;
  return {group / per_request, head, head / (shape.heads / shape.kv_heads),
          (shape.row_blocks() - 1 - within / width) * shape.row_block};
}

// Key tiles that the row block starting at `row` sees.
constexpr int tiles_of(const Shape& shape, int row, int tile_keys) {
  const int end = row + shape.row_block < shape.length ? row + shape.row_block : shape.length;
  return (end + tile_keys - 1) / tile_keys;
}

// Head groups whose K and V (bf16, head dimension 128) fill at most 32 MB of the L2, 16 at least.
constexpr int section_of(int length, int kv_heads, int heads, int head_group) {
  const int kv_bytes = 2 * length * 128 * 2;
  const int groups_per_kv_head = heads / kv_heads / head_group;
  const int fitting = (32 << 20) / kv_bytes * groups_per_kv_head;
  return fitting < 16 ? 16 : fitting;
}

}  // namespace asynct::bench
