//! Mixtures of experts.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure, to_u32};
use crate::launch::Arguments;
use crate::linear::{BF16_OUTPUTS, F32_OUTPUTS, few_threads, outputs_of_expert, slice_len};
use crate::matrix::{Matrix, WeightFormat};
use crate::rows::{MAX_GRID_ROWS, THREADS};
use crate::scratch::Room;

/// Kernels for routed rows in bfloat16.
struct ExpertTile {
    kernel: &'static str,
    /// Rows of one expert that a block treats at once.
    rows: usize,
    /// Outputs of a block; its grid has them first if they are those of the kernels for few rows.
    outputs: u32,
    /// Bytes of shared memory.
    shared: u32,
}

/// The kernels by the mean number of an expert's rows, ascending. The results don't depend on the choice.
const EXPERT_TILES: [ExpertTile; 3] = [
    ExpertTile {
        kernel: "linear_experts_bf16",
        rows: 8,
        outputs: BF16_OUTPUTS,
        shared: 0,
    },
    ExpertTile {
        kernel: "linear_experts_tile_32",
        rows: 32,
        outputs: 64,
        shared: 4 * 96 * 128,
    },
    ExpertTile {
        kernel: "linear_experts_tile_64",
        rows: 64,
        outputs: 128,
        shared: 3 * 192 * 128,
    },
];

/// The kernel for so many routed rows.
fn expert_tile(routed: usize, num_experts: usize) -> &'static ExpertTile {
    let mean = routed.div_ceil(num_experts);
    let [few, some, many] = &EXPERT_TILES;
    match mean {
        ..=8 => few,
        9..=32 => some,
        _ => many,
    }
}
/// Threads of a block of the kernels for many rows.
const TILE_THREADS: u32 = 128;
/// Most experts of a layer: each has a flag in a warp's shared memory.
const MAX_EXPERTS: usize = 16_384;

/// Which rows go through which expert: lists on the device, made by [`Device::route`].
///
/// Routed rows stand by their experts, ascending, and those of one expert by their rows. There are
/// `rows * top_k` of them.
#[derive(Debug)]
pub struct Routing {
    num_experts: usize,
    top_k: usize,
    max_rows: usize,
    rows: usize,
    /// `[rows, top_k]` experts of a row, ascending.
    choices: Buffer,
    /// `[rows, top_k]` their shares.
    weights: Buffer,
    /// `[rows, top_k]` where each stands among the routed rows.
    places: Buffer,
    /// `[rows * top_k]` the row that a routed row is of.
    routed: Buffer,
    /// `[num_experts]` routed rows of each.
    counts: Buffer,
    /// `[num_experts + 1]` the first routed row of each.
    firsts: Buffer,
    /// Pairs of an expert and its first row of a tile.
    tiles: Buffer,
}

impl Routing {
    /// Room for `max_rows` rows.
    pub fn allocate(
        device: &Device,
        num_experts: usize,
        top_k: usize,
        max_rows: usize,
    ) -> Result<Self, DeviceError> {
        const NAME: &str = "Routing::allocate";
        let is_possible = (1..=num_experts).contains(&top_k) && num_experts <= MAX_EXPERTS;
        ensure(is_possible, NAME, || {
            format!("{top_k} of {num_experts} experts, of which there may be {MAX_EXPERTS}")
        })?;
        let routed = max_rows.saturating_mul(top_k);
        to_u32(NAME, "routed rows", routed)?;
        let list = |len: usize| device.allocate(4 * len);
        Ok(Self {
            num_experts,
            top_k,
            max_rows,
            rows: 0,
            choices: list(routed)?,
            weights: list(routed)?,
            places: list(routed)?,
            routed: list(routed)?,
            counts: list(num_experts)?,
            firsts: list(num_experts + 1)?,
            tiles: list(2 * max_tiles(routed, num_experts, EXPERT_TILES[0].rows))?,
        })
    }

    /// Experts of each row.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Experts to choose from.
    pub fn num_experts(&self) -> usize {
        self.num_experts
    }

    /// Routed rows of the last [`Device::route`].
    pub fn num_routed(&self) -> usize {
        self.rows * self.top_k
    }

    /// `[rows, top_k]` u32 experts of each row, ascending.
    pub fn choices(&self) -> &Buffer {
        &self.choices
    }

    /// `[rows, top_k]` f32 shares of each row's experts.
    pub fn weights(&self) -> &Buffer {
        &self.weights
    }

    /// `[num_routed]` u32 rows that the routed rows are of.
    pub fn routed_rows(&self) -> &Buffer {
        &self.routed
    }

    /// The kernel for the routed rows.
    fn tile(&self) -> &'static ExpertTile {
        expert_tile(self.num_routed(), self.num_experts)
    }

    fn max_tiles(&self) -> usize {
        max_tiles(self.num_routed(), self.num_experts, self.tile().rows)
    }
}

/// Most tiles that rows may need, however they are spread.
fn max_tiles(routed: usize, num_experts: usize, tile_rows: usize) -> usize {
    routed.min(routed / tile_rows + num_experts)
}

impl Device {
    /// Chooses the experts of each row by its logits `[rows, num_experts]`: the likeliest, of equals the first. Their
    /// shares sum to 1 if `normalize`, else they are parts of all experts' softmax.
    pub fn route(
        &self,
        logits: &Buffer,
        rows: usize,
        normalize: bool,
        routing: &mut Routing,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "route";
        let (num_experts, top_k) = (routing.num_experts, routing.top_k);
        logits.require_rows(self, NAME, "logits", rows, num_experts)?;
        routing.choices.require(self, NAME, "the routing", 0, 0)?;
        ensure(rows <= routing.max_rows, NAME, || {
            format!("{rows} rows in a routing of {}", routing.max_rows)
        })?;
        routing.rows = rows;
        let arguments = Arguments::new()
            .buffer(logits)
            .u32(num_experts as u32)
            .u32(top_k as u32)
            .u32(u32::from(normalize))
            .buffer(&routing.choices)
            .buffer(&routing.weights);
        self.launch(
            "route_rows",
            [rows as u32, 1, 1],
            32,
            num_experts as u32,
            arguments,
        )?;
        let choices = routing.num_routed() as u32;
        let arguments = Arguments::new()
            .buffer(&routing.choices)
            .u32(choices)
            .buffer(&routing.counts);
        let grid = [num_experts as u32, 1, 1];
        self.launch("count_routed", grid, THREADS, 0, arguments)?;
        let arguments = Arguments::new()
            .buffer(&routing.choices)
            .u32(choices)
            .u32(top_k as u32)
            .buffer(&routing.counts)
            .buffer(&routing.firsts)
            .buffer(&routing.routed)
            .buffer(&routing.places)
            .buffer(&routing.tiles)
            .u32(routing.max_tiles() as u32)
            .u32(routing.tile().rows as u32);
        self.launch("list_routed", grid, THREADS, 0, arguments)
    }

    /// `out[i] = x[row that routed row i is of]`, `x` being `[rows, width]` and `out` `[num_routed, width]`.
    pub fn gather_routed(
        &self,
        x: &Buffer,
        routing: &Routing,
        width: usize,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        let routed = routing.num_routed();
        self.gather_rows(x, routing.rows, width, &routing.routed, routed, out)
    }

    /// `out = x * matrix^T + bias` of routed rows, the matrix being that of the row's expert. `experts` are all of them
    /// stacked, ascending: `[num_experts * n, in_features]`.
    pub fn linear_experts(
        &self,
        x: &Buffer,
        routing: &Routing,
        experts: &Matrix,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "linear_experts";
        let outputs = outputs_of_expert(NAME, experts, routing.num_experts)?;
        let (routed, width) = (routing.num_routed(), experts.in_features());
        experts.buffer.require(self, NAME, "the experts", 0, 0)?;
        routing.tiles.require(self, NAME, "the routing", 0, 0)?;
        x.require_rows(self, NAME, "x", routed, width)?;
        out.require_rows(self, NAME, "out", routed, outputs)?;
        let (tiles, tile) = (routing.max_tiles(), routing.tile());
        ensure(tiles <= MAX_GRID_ROWS, NAME, || {
            format!("{tiles} tiles of rows")
        })?;
        let outputs_u32 = to_u32(NAME, "outputs", outputs)?;
        match experts.format() {
            WeightFormat::F32 => {
                let arguments = Arguments::new()
                    .buffer(x)
                    .buffer(&routing.tiles)
                    .buffer(&routing.firsts)
                    .buffer(&experts.buffer)
                    .u32(outputs_u32)
                    .u32(to_u32(NAME, "the width", width)?)
                    .optional(experts.bias.as_ref())
                    .buffer(out)
                    .u32(tile.rows as u32);
                let grid = [outputs_u32.div_ceil(F32_OUTPUTS), tiles as u32, 1];
                self.launch("linear_experts_f32", grid, 32 * F32_OUTPUTS, 0, arguments)
            }
            WeightFormat::Bf16 => {
                let stride = experts.stride();
                let mut scratch = self.scratch();
                let rounded = scratch.room(self, Room::Rounded, routed * stride * 2)?;
                self.round_rows(x, 0, routed, (width, stride), rounded)?;
                let slice = slice_len(outputs, stride);
                let arguments = Arguments::new()
                    .address(rounded)
                    .buffer(&routing.tiles)
                    .buffer(&routing.firsts)
                    .buffer(&experts.buffer)
                    .u32(outputs_u32)
                    .u32(to_u32(NAME, "the width", stride)?)
                    .optional(experts.bias.as_ref())
                    .buffer(out)
                    .u32(slice as u32);
                let blocks = outputs_u32.div_ceil(tile.outputs);
                // Few rows: blocks of a tile's outputs follow one another. Many: those of an output's tiles do.
                let (grid, threads) = match tile.shared {
                    0 => ([blocks, tiles as u32, 1], few_threads(slice, stride)),
                    _ => ([tiles as u32, blocks, 1], TILE_THREADS),
                };
                self.launch(tile.kernel, grid, threads, tile.shared, arguments)
            }
        }
    }

    /// `out[t]` = sum of its routed rows, each times the share of its expert, the experts ascending. `routed` is
    /// `[num_routed, width]`, `out` `[rows, width]`.
    pub fn combine_routed(
        &self,
        routed: &Buffer,
        routing: &Routing,
        width: usize,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "combine_routed";
        routing.places.require(self, NAME, "the routing", 0, 0)?;
        routed.require_rows(self, NAME, "routed", routing.num_routed(), width)?;
        out.require_rows(self, NAME, "out", routing.rows, width)?;
        let top_k = routing.top_k;
        self.in_row_pieces(routing.rows, |first, count| {
            let arguments = Arguments::new()
                .buffer(routed)
                .buffer_at(&routing.places, first * top_k * 4)
                .buffer_at(&routing.weights, first * top_k * 4)
                .u32(top_k as u32)
                .buffer_at(out, first * width * 4)
                .u32(to_u32(NAME, "the width", width)?);
            let grid = [(width as u32).div_ceil(THREADS), count, 1];
            self.launch(NAME, grid, THREADS, 0, arguments)
        })
    }
}
