//! Captured launches.

use cuda_device::{Matrix, Vector, WeightFormat};

use crate::support::{Numbers, assert_same, devices, download, room, upload};

#[test]
fn a_graph_gives_the_results_of_its_operations() {
    for device in devices() {
        let (rows, width) = (9, 48);
        let mut numbers = Numbers::new(18);
        let weights = numbers.values(width * width);
        let matrix = Matrix::from_f32(&device, WeightFormat::Bf16, width, &weights, None).unwrap();
        let norm = Vector::upload(&device, &numbers.values(width)).unwrap();
        let (first, second) = (numbers.values(rows * width), numbers.values(rows * width));
        let mut x = upload(&device, &first);
        let (mut middle, mut out) = (room(&device, rows * width), room(&device, rows * width));
        device.begin_capture().unwrap();
        assert!(device.begin_capture().is_err() && device.allocate(4).is_err());
        device.rms_norm(&x, rows, &norm, 1e-6, &mut middle).unwrap();
        device.linear(&middle, rows, &matrix, &mut out).unwrap();
        let graph = device.end_capture().unwrap();
        assert!(device.end_capture().is_err());
        assert!(download(&device, &out, 1)[0].is_nan(), "nothing has run");
        for values in [first, second] {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            device.upload(&mut x, 0, &bytes).unwrap();
            // SAFETY: all buffers live.
            unsafe { device.launch_graph(&graph).unwrap() };
            let found = download(&device, &out, rows * width);
            device.rms_norm(&x, rows, &norm, 1e-6, &mut middle).unwrap();
            device.linear(&middle, rows, &matrix, &mut out).unwrap();
            assert_same(&found, &download(&device, &out, rows * width), "replayed");
        }
    }
}
