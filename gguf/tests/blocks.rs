//! Every block format against candle's, which shares no code with ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use gguf::{MAX_BLOCK_LEN, TensorType};

const FORMATS: [(TensorType, GgmlDType); 8] = [
    (TensorType::Q4_0, GgmlDType::Q4_0),
    (TensorType::Q4_1, GgmlDType::Q4_1),
    (TensorType::Q5_0, GgmlDType::Q5_0),
    (TensorType::Q5_1, GgmlDType::Q5_1),
    (TensorType::Q8_0, GgmlDType::Q8_0),
    (TensorType::Q4K, GgmlDType::Q4K),
    (TensorType::Q5K, GgmlDType::Q5K),
    (TensorType::Q6K, GgmlDType::Q6K),
];

/// Values with blocks of different size, sign and spread.
fn values() -> Vec<f32> {
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..16 * MAX_BLOCK_LEN)
        .map(|index| {
            let group = index / 32;
            random() * (group % 7) as f32 + (group % 3) as f32 - 1.0
        })
        .collect()
}

fn quantized(dtype: GgmlDType) -> QTensor {
    let tensor = Tensor::from_vec(values(), (16, MAX_BLOCK_LEN), &Device::Cpu).unwrap();
    QTensor::quantize(&tensor, dtype).unwrap()
}

#[test]
fn blocks_hold_what_candle_reads_from_them() {
    for (format, dtype) in FORMATS {
        let tensor = quantized(dtype);
        let expected = tensor.dequantize(&Device::Cpu).unwrap();
        let expected: Vec<f32> = expected.flatten_all().unwrap().to_vec1().unwrap();
        let data = tensor.data().unwrap();
        let (block_len, block_bytes) = format.block().unwrap();
        assert_eq!(dtype.block_size(), block_len);
        let mut found = Vec::new();
        for block in data.chunks_exact(block_bytes) {
            let mut values = [f32::NAN; MAX_BLOCK_LEN];
            format.dequantize_block(block, &mut values);
            found.extend_from_slice(&values[..block_len]);
        }
        assert_eq!(found, expected, "{format}");
    }
}

#[test]
fn symmetric_blocks_are_a_scale_times_integers() {
    for (format, dtype) in FORMATS {
        let tensor = quantized(dtype);
        let (block_len, block_bytes) = format.block().unwrap();
        for block in tensor.data().unwrap().chunks_exact(block_bytes) {
            let symmetric = format.symmetric_block(block);
            let expected = matches!(
                format,
                TensorType::Q8_0 | TensorType::Q4_0 | TensorType::Q5_0
            );
            assert_eq!(symmetric.is_some(), expected, "{format}");
            let Some((scale, integers)) = symmetric else {
                continue;
            };
            let mut values = [0.0; MAX_BLOCK_LEN];
            format.dequantize_block(block, &mut values);
            for (value, integer) in values[..block_len].iter().zip(integers) {
                assert_eq!(*value, scale.to_f32() * f32::from(integer), "{format}");
            }
        }
    }
}

#[test]
fn numbers_and_names_belong_together() {
    for format in TensorType::SUPPORTED {
        assert_eq!(TensorType::from_id(format.id()), format);
        assert!(
            format
                .block()
                .is_some_and(|(len, _)| MAX_BLOCK_LEN.is_multiple_of(len))
        );
    }
    for id in 0..64 {
        let format = TensorType::from_id(id);
        assert_eq!(format.id(), id);
        assert_eq!(
            format.block().is_some(),
            TensorType::SUPPORTED.contains(&format)
        );
    }
    let names = TensorType::SUPPORTED.map(|format| format.to_string());
    assert_eq!(names.join(", "), TensorType::SUPPORTED_NAMES);
    assert_eq!(TensorType::from_id(10).to_string(), "Q2_K");
    assert_eq!(TensorType::from_id(99).to_string(), "type 99");
}
