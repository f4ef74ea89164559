//! Compiles the kernels as C++ for the simulator, where its feature is on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_simulator)");
    #[cfg(feature = "simulator")]
    simulator::build();
    #[cfg(not(feature = "simulator"))]
    println!("cargo::rustc-env=CUDA_DEVICE_NO_SIMULATOR=this build has none");
}

#[cfg(feature = "simulator")]
mod simulator {
    use std::path::Path;
    use std::{env, fs, io};

    /// Sets `has_simulator` where the simulator could be built, else `CUDA_DEVICE_NO_SIMULATOR` to the reason.
    pub(super) fn build() {
        println!("cargo::rerun-if-changed=kernels");
        println!("cargo::rerun-if-env-changed=CUDA_DEVICE_SANITIZE");
        match try_build() {
            Ok(()) => println!("cargo::rustc-cfg=has_simulator"),
            Err(reason) => {
                let reason = reason.replace('\n', " ");
                println!("cargo::rustc-env=CUDA_DEVICE_NO_SIMULATOR={reason}");
            }
        }
    }

    fn try_build() -> Result<(), String> {
        let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
        if target("ARCH") != "x86_64" || target("OS") != "linux" {
            return Err("the simulator runs on x86-64 Linux only".to_owned());
        }
        let out = env::var("OUT_DIR").map_err(|error| error.to_string())?;
        list_kernels(Path::new(&out)).map_err(|error| format!("the kernels: {error}"))?;
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").file("kernels/simulator.cpp");
        build.include("kernels").include(&out);
        build.opt_level(2).debug(false).warnings(false);
        build.flag("-ffp-contract=off").flag("-fno-strict-aliasing");
        build.flag("-ftls-model=initial-exec");
        if env::var_os("CUDA_DEVICE_SANITIZE").is_some() {
            build.flag("-fsanitize=address").flag("-g");
        }
        let compiled = build.try_compile("cuda_device_simulator");
        compiled.map_err(|error| format!("a C++ compiler is needed: {error}"))
    }

    /// Writes `all.h`, which includes the kernels, and `names.h`, which lists them.
    fn list_kernels(out: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir("kernels")? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "cu") {
                files.push(path);
            }
        }
        files.sort();
        let (mut includes, mut names) = (String::new(), String::new());
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            includes.push_str(&format!("#include \"{name}\"\n"));
            for kernel in fs::read_to_string(&file)?.split("\nKERNEL(").skip(1) {
                let name = kernel.split(')').next().unwrap_or_default();
                names.push_str(&format!("ENTRY({name})\n"));
            }
        }
        fs::write(out.join("all.h"), includes)?;
        fs::write(out.join("names.h"), names)
    }
}
