//! The head of a classifier: a few dense layers over one pooled hidden state, in f32.

use super::super::checkpoint::Checkpoint;
use super::super::error::ModelError;
use super::super::weights::StoredTensor;

/// A layer of a classifier, as its file names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DenseName {
    /// Without `.weight` or `.bias`.
    pub(super) name: &'static str,
    /// Whether it has a bias.
    pub(super) bias: bool,
    /// Whether a tanh follows.
    pub(super) tanh: bool,
}

/// The layers of a classifier, in order.
pub(super) struct Classifier(Vec<Dense>);

struct Dense {
    in_features: usize,
    /// `[out_features, in_features]`
    weight: Vec<f32>,
    /// `[out_features]`
    bias: Vec<f32>,
    tanh: bool,
}

impl Classifier {
    /// Reads the layers; the number of labels is that of the last one's rows.
    pub(super) fn load(
        checkpoint: &Checkpoint,
        hidden_size: usize,
        names: &[DenseName],
    ) -> Result<Self, ModelError> {
        let mut in_features = hidden_size;
        let mut layers = Vec::new();
        for &DenseName { name, bias, tanh } in names {
            let found = find(
                checkpoint,
                &format!("{name}.weight"),
                |shape| match *shape {
                    [rows, _] if rows > 0 => vec![rows, in_features],
                    _ => vec![1, in_features],
                },
            )?;
            let out_features = found.len() / in_features.max(1);
            layers.push(Dense {
                in_features,
                weight: found,
                bias: match bias {
                    true => find(checkpoint, &format!("{name}.bias"), |_| vec![out_features])?,
                    false => vec![0.0; out_features],
                },
                tanh,
            });
            in_features = out_features;
        }
        Ok(Self(layers))
    }

    /// Logits that come of it.
    pub(super) fn num_labels(&self) -> usize {
        self.0.last().map_or(0, |layer| layer.bias.len())
    }

    /// The logits of a pooled hidden state. Sums are made in f64, in the order of the features.
    ///
    /// # Errors
    /// [`ModelError::Input`] where `pooled` is not as wide as the model.
    pub(super) fn apply(&self, pooled: &[f32]) -> Result<Vec<f32>, ModelError> {
        let mut values = pooled.to_vec();
        for layer in &self.0 {
            if values.len() != layer.in_features {
                return Err(ModelError::Input {
                    field: "pooled",
                    problem: format!("length {} must be {}", values.len(), layer.in_features),
                });
            }
            let rows = layer.weight.chunks_exact(layer.in_features);
            let sums = rows.zip(&layer.bias).map(|(row, bias)| {
                let products = row.iter().zip(&values);
                let sum: f64 = products.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                let sum = sum + f64::from(*bias);
                (if layer.tanh { sum.tanh() } else { sum }) as f32
            });
            values = sums.collect();
        }
        Ok(values)
    }
}

/// A tensor in f32; `expected` makes the right shape of the file's.
fn find(
    checkpoint: &Checkpoint,
    name: &str,
    expected: impl Fn(&[usize]) -> Vec<usize>,
) -> Result<Vec<f32>, ModelError> {
    let Some(raw) = checkpoint.find(name)? else {
        return Err(ModelError::MissingTensor {
            name: name.to_owned(),
            expected: expected(&[]),
        });
    };
    let expected = expected(raw.shape);
    Ok(StoredTensor::new(raw, || name.to_owned(), &expected)?.to_f32())
}
