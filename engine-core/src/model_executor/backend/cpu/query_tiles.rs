//! How attention cuts a batch into tiles. Where it cuts changes the speed, never a result.

use crate::model_executor::backend::AttentionShape;

/// Query rows (tokens times heads) that a tile aims at.
const ROWS_PER_TILE: usize = 48;

/// Rows of one request that a tile takes.
pub(crate) fn tokens_per_tile(shape: AttentionShape) -> usize {
    (ROWS_PER_TILE / shape.group()).max(1)
}

/// Some consecutive rows of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryTile {
    pub(crate) request: usize,
    pub(crate) first_row: usize,
    pub(crate) num_tokens: usize,
    /// Position of the first row.
    pub(crate) first_position: usize,
    /// Tokens of the request, this step's included.
    pub(crate) seq_len: usize,
}

/// Cuts a batch into tiles, into room that exists.
pub(crate) fn cut_into_tiles(
    shape: AttentionShape,
    query_start_loc: &[u32],
    seq_lens: &[u32],
    tiles: &mut Vec<QueryTile>,
) {
    tiles.clear();
    for (request, (rows, seq_len)) in query_start_loc.windows(2).zip(seq_lens).enumerate() {
        let (start, end) = (rows[0] as usize, rows[1] as usize);
        for first_row in (start..end).step_by(tokens_per_tile(shape)) {
            tiles.push(QueryTile {
                request,
                first_row,
                num_tokens: tokens_per_tile(shape).min(end - first_row),
                first_position: *seq_len as usize - (end - first_row),
                seq_len: *seq_len as usize,
            });
        }
    }
    // Long ones first, so that none is left for the end alone.
    tiles.sort_unstable_by_key(|tile| {
        (
            std::cmp::Reverse(tile.first_position + tile.num_tokens),
            tile.first_row,
        )
    });
}

/// Most tiles of a step.
pub(crate) fn most_tiles(shape: AttentionShape, max_tokens: usize, max_requests: usize) -> usize {
    max_tokens.div_ceil(tokens_per_tile(shape)) + max_requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_once_the_longest_context_first() {
        let shape = AttentionShape {
            num_heads: 14,
            num_kv_heads: 2,
            head_dim: 64,
        };
        let mut tiles = Vec::new();
        // 20 rows that end a sequence of 100, one row at position 4.
        cut_into_tiles(shape, &[0, 20, 21], &[100, 5], &mut tiles);
        assert!(tiles.len() <= most_tiles(shape, 21, 2));
        let mut rows: Vec<(usize, usize, usize)> = tiles
            .iter()
            .flat_map(|tile| {
                (0..tile.num_tokens)
                    .map(|i| (tile.first_row + i, tile.request, tile.first_position + i))
            })
            .collect();
        rows.sort_unstable();
        let expected = (0..20).map(|row| (row, 0, 80 + row)).chain([(20, 1, 4)]);
        assert!(rows.into_iter().eq(expected));
        let ends: Vec<usize> = tiles
            .iter()
            .map(|tile| tile.first_position + tile.num_tokens)
            .collect();
        assert!(ends.is_sorted_by(|a, b| a >= b), "{ends:?}");
    }
}
