//! The kernels' source, which every executable carries.

/// What each file of kernels includes.
pub(crate) const COMMON: &str = include_str!("../kernels/common.cuh");

/// The files of kernels, each with what it is about.
const FILES: &[&str] = &[
    include_str!("../kernels/rows.cu"),
    include_str!("../kernels/norm.cu"),
    include_str!("../kernels/rotary.cu"),
    include_str!("../kernels/attention.cu"),
    include_str!("../kernels/attention_mma.cu"),
    include_str!("../kernels/linear_f32.cu"),
    include_str!("../kernels/linear_bf16.cu"),
    include_str!("../kernels/linear_tiled.cu"),
    include_str!("../kernels/experts.cu"),
    include_str!("../kernels/head.cu"),
];

/// All kernels as one source, which includes `common.cuh`.
pub(crate) fn kernels() -> String {
    FILES.concat()
}

/// Names of the kernels, as `KERNEL(name)` at the start of a line says them.
pub(crate) fn kernel_names() -> Vec<&'static str> {
    let kernels = FILES
        .iter()
        .flat_map(|file| file.split("\nKERNEL(").skip(1));
    kernels
        .filter_map(|kernel| kernel.split(')').next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_the_folder_are_embedded() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let mut found = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "cu") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(FILES.contains(&text.as_str()), "{}", path.display());
                found += 1;
            }
        }
        assert_eq!(found, FILES.len());
    }

    #[test]
    fn kernels_have_names() {
        let names = kernel_names();
        assert!(names.contains(&"embed_f32") && names.contains(&"row_argmax"));
        assert!(names.iter().all(|name| !name.is_empty()));
    }
}
