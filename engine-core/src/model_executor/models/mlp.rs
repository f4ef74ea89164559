//! The MLP block of a layer: one gated MLP, or a mixture of experts that are such.

use super::decoder::Buffers;
use crate::model_executor::backend::{Backend, ExpertChoice};
use crate::model_executor::config::{ExpertsConfig, HfConfig, HiddenAct};
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::WeightLoader;

/// What differs between the MLPs of the families; the default is none of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MlpOptions {
    /// Biases on the projections.
    pub(super) bias: bool,
    /// Whether the checkpoint has gate and up in one matrix.
    pub(super) stored_fused: bool,
}

/// `down(act(gate(x)) * up(x))`
pub(super) struct GatedMlp<B: Backend> {
    act: HiddenAct,
    gate_up_proj: B::Matrix,
    down_proj: B::Matrix,
}

impl<B: Backend> GatedMlp<B> {
    pub(super) fn load(
        config: &HfConfig,
        prefix: &str,
        options: MlpOptions,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self, ModelError> {
        let (hidden, width) = (config.hidden_size, config.intermediate_size);
        let block = format!("{prefix}.mlp");
        let gate_up: &[(&str, usize)] = if options.stored_fused {
            &[("gate_up_proj", 2 * width)]
        } else {
            &[("gate_proj", width), ("up_proj", width)]
        };
        let down = [("down_proj", hidden)];
        Ok(Self {
            act: config.hidden_act,
            gate_up_proj: loader.fused_linear(hidden, &block, gate_up, options.bias)?,
            down_proj: loader.fused_linear(width, &block, &down, options.bias)?,
        })
    }

    /// Reads `normed`, writes `delta`.
    pub(super) fn forward(
        &self,
        backend: &mut B,
        buffers: &mut Buffers<B>,
    ) -> Result<(), ModelError> {
        let Buffers {
            normed,
            gate_up,
            mlp,
            delta,
            ..
        } = buffers;
        let matrices = (&self.gate_up_proj, &self.down_proj);
        backend.gated_mlp(normed, matrices, self.act, gate_up, mlp, delta)
    }
}

/// Where a family's checkpoints have the parts of a mixture, without the layer's prefix.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpertNames {
    /// The block, such as `mlp`.
    pub(super) block: &'static str,
    /// Parts of an expert.
    pub(super) gate: &'static str,
    pub(super) up: &'static str,
    pub(super) down: &'static str,
}

/// A mixture of gated MLPs: each token goes through the experts that the router finds likeliest.
pub(super) struct Experts<B: Backend> {
    act: HiddenAct,
    choice: ExpertChoice,
    router: B::Matrix,
    /// By expert.
    gate_up_proj: B::Experts,
    down_proj: B::Experts,
}

impl<B: Backend> Experts<B> {
    pub(super) fn load(
        config: &HfConfig,
        experts: &ExpertsConfig,
        prefix: &str,
        names: ExpertNames,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self, ModelError> {
        let (hidden, width) = (config.hidden_size, experts.intermediate_size);
        let block = format!("{prefix}.{}", names.block);
        let (mut gate_up_proj, mut down_proj) = (Vec::new(), Vec::new());
        for expert in 0..experts.num_experts {
            let expert = format!("{block}.experts.{expert}");
            let gate_up = [(names.gate, width), (names.up, width)];
            let down = [(names.down, hidden)];
            gate_up_proj.push(loader.expert_linear(hidden, &expert, &gate_up)?);
            down_proj.push(loader.expert_linear(width, &expert, &down)?);
        }
        Ok(Self {
            act: config.hidden_act,
            choice: ExpertChoice::of(experts),
            router: loader.router(hidden, &format!("{block}.gate"), experts.num_experts)?,
            gate_up_proj: loader.join_experts(gate_up_proj)?,
            down_proj: loader.join_experts(down_proj)?,
        })
    }

    /// Reads `normed`, writes `delta`.
    pub(super) fn forward(
        &self,
        backend: &mut B,
        buffers: &mut Buffers<B>,
    ) -> Result<(), ModelError> {
        let Buffers {
            normed,
            delta,
            experts: Some(experts),
            ..
        } = buffers
        else {
            return Err(ModelError::Input {
                field: "limits",
                problem: "must be reserved with experts".to_owned(),
            });
        };
        let ExpertBuffers {
            router_logits,
            rows,
            gate_up,
            mlp,
        } = experts;
        backend.linear(normed, &self.router, router_logits)?;
        backend.route(router_logits, self.choice)?;
        backend.gather_routed(normed, rows)?;
        backend.linear_experts(rows, &self.gate_up_proj, gate_up)?;
        backend.act_and_mul(self.act, gate_up, mlp)?;
        backend.linear_experts(mlp, &self.down_proj, rows)?;
        backend.combine_routed(rows, delta)
    }
}

/// The activations of a mixture.
pub(super) struct ExpertBuffers<B: Backend> {
    /// `[num_tokens, num_experts]`
    router_logits: B::Activation,
    /// `[num_tokens * top_k, hidden]` inputs and outputs of the experts.
    rows: B::Activation,
    /// `[num_tokens * top_k, 2 * intermediate]`
    gate_up: B::Activation,
    /// `[num_tokens * top_k, intermediate]`
    mlp: B::Activation,
}

impl<B: Backend> ExpertBuffers<B> {
    pub(super) fn allocate(
        backend: &B,
        hidden_size: usize,
        experts: &ExpertsConfig,
        num_tokens: usize,
    ) -> Result<Self, ModelError> {
        let routed = num_tokens.saturating_mul(experts.num_experts_per_tok);
        let width = experts.intermediate_size;
        Ok(Self {
            router_logits: backend.allocate(num_tokens, experts.num_experts)?,
            rows: backend.allocate(routed, hidden_size)?,
            gate_up: backend.allocate(routed, 2 * width)?,
            mlp: backend.allocate(routed, width)?,
        })
    }
}

impl ExpertChoice {
    pub(super) fn of(experts: &ExpertsConfig) -> Self {
        Self {
            num_experts: experts.num_experts,
            top_k: experts.num_experts_per_tok,
            normalize: experts.norm_topk_prob,
        }
    }
}
