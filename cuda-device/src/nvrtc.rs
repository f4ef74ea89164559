//! NVRTC, CUDA's compiler as a library, found at run time where toolkits and Python wheels put it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

use crate::error::DeviceError;
use crate::sources;

/// File names, the newest that the driver of CUDA 13.0 understands first.
const NAMES: &[&str] = &[
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so",
    "nvrtc64_130_0.dll",
    "nvrtc64_120_0.dll",
];

/// Folders below one that an environment variable names.
const FOLDERS: &[&str] = &[
    "",
    "lib64",
    "lib",
    "bin",
    "lib/x86_64-linux-gnu",
    "targets/x86_64-linux/lib",
    "nvidia/cu13/lib",
    "nvidia/cuda_nvrtc/lib",
];

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type CompileProgram = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

/// The compiler's library.
pub(crate) struct Nvrtc {
    library: Library,
    /// What it opens by name when it compiles: it finds it where that is open already.
    _builtins: Vec<Library>,
}

impl Nvrtc {
    /// Loads the library from `CUDA_HOME`, `CUDA_PATH`, `LD_LIBRARY_PATH`, a virtual environment or the usual places.
    pub(crate) fn load() -> Result<Self, DeviceError> {
        let mut tried = Vec::new();
        for candidate in candidates() {
            // SAFETY: the library is NVIDIA's, by its name; loading it runs no code of ours.
            if let Ok(library) = unsafe { Library::new(&candidate) } {
                return Ok(Self {
                    library,
                    _builtins: builtins_beside(&candidate),
                });
            }
            tried.push(candidate.display().to_string());
        }
        Err(DeviceError::NoCompiler {
            tried: tried.join(", "),
        })
    }

    /// Machine code of all kernels for a target, such as `sm_90a`.
    pub(crate) fn compile(&self, arch: &str) -> Result<Vec<u8>, DeviceError> {
        let text = |text: &str| {
            CString::new(text).map_err(|error| DeviceError::Compile {
                arch: arch.to_owned(),
                log: error.to_string(),
            })
        };
        let (source, header) = (text(&sources::kernels())?, text(sources::COMMON)?);
        let mut program: Program = ptr::null_mut();
        // SAFETY: the signatures are those of nvrtc.h; all strings live until the calls have returned.
        unsafe {
            let create = self.function::<Create>(c"nvrtcCreateProgram")?;
            let headers = [header.as_ptr()];
            let names = [c"common.cuh".as_ptr()];
            let name = c"kernels.cu".as_ptr();
            let status = create(
                &mut program,
                source.as_ptr(),
                name,
                1,
                headers.as_ptr(),
                names.as_ptr(),
            );
            self.check("nvrtcCreateProgram", status)?;
        }
        let compiled =
            self.compile_program(program, arch, &text(&format!("--gpu-architecture={arch}"))?);
        // SAFETY: the program was created above and is not used again.
        unsafe {
            let destroy = self.function::<Destroy>(c"nvrtcDestroyProgram")?;
            self.check("nvrtcDestroyProgram", destroy(&mut program))?;
        }
        compiled
    }

    fn compile_program(
        &self,
        program: Program,
        arch: &str,
        target: &CStr,
    ) -> Result<Vec<u8>, DeviceError> {
        // No contraction: two kernels that share a chain of sums must agree bit for bit.
        let options = [
            target.as_ptr(),
            c"--std=c++17".as_ptr(),
            c"--fmad=false".as_ptr(),
        ];
        // SAFETY: the program is valid, and the options live until the call has returned.
        let status = unsafe {
            let compile = self.function::<CompileProgram>(c"nvrtcCompileProgram")?;
            compile(program, options.len() as c_int, options.as_ptr())
        };
        if status != 0 {
            let log = self.read(program, c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog")?;
            let log = String::from_utf8_lossy(&log);
            return Err(DeviceError::Compile {
                arch: arch.to_owned(),
                log: log.trim_end_matches('\0').to_owned(),
            });
        }
        self.read(program, c"nvrtcGetCUBINSize", c"nvrtcGetCUBIN")
    }

    /// What a pair of functions says the size and the bytes of.
    fn read(&self, program: Program, size: &CStr, get: &CStr) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = 0;
        // SAFETY: the signatures are those of nvrtc.h; the second call writes as many bytes as the first says.
        unsafe {
            self.check(
                "nvrtcGet...Size",
                self.function::<Size>(size)?(program, &mut bytes),
            )?;
            let mut read = vec![0_u8; bytes];
            let status = self.function::<Get>(get)?(program, read.as_mut_ptr().cast());
            self.check("nvrtcGet...", status)?;
            Ok(read)
        }
    }

    /// # Safety
    /// `F` must be the signature of the function.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, DeviceError> {
        // SAFETY: passed on to the caller.
        let symbol = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        symbol
            .map(|symbol| *symbol)
            .map_err(|error| DeviceError::Driver {
                call: "NVRTC",
                message: error.to_string(),
            })
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), DeviceError> {
        if status == 0 {
            return Ok(());
        }
        Err(DeviceError::Driver {
            call,
            message: format!("NVRTC's status {status}"),
        })
    }
}

/// The libraries that the compiler's own one needs, in its folder.
fn builtins_beside(library: &Path) -> Vec<Library> {
    let mut builtins = Vec::new();
    let folder = library.parent().filter(|folder| folder.is_absolute());
    for file in folder.into_iter().flat_map(std::fs::read_dir).flatten() {
        let Ok(file) = file else { continue };
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("libnvrtc-builtins.so") || name.starts_with("nvrtc-builtins64") {
            // SAFETY: the library is NVIDIA's, by its name; loading it runs no code of ours.
            builtins.extend(unsafe { Library::new(file.path()) });
        }
    }
    builtins
}

/// Where the library may be, the likeliest first.
fn candidates() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"] {
        if let Some(value) = std::env::var_os(variable) {
            roots.extend(std::env::split_paths(&value));
        }
    }
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV") {
        let library = PathBuf::from(environment).join("lib");
        let versions = std::fs::read_dir(library).into_iter().flatten().flatten();
        roots.extend(versions.map(|version| version.path().join("site-packages")));
    }
    roots.push(PathBuf::from("/usr/local/cuda"));
    let mut candidates = Vec::new();
    for root in roots {
        for folder in FOLDERS {
            let files = NAMES.iter().map(|name| root.join(folder).join(name));
            candidates.extend(files.filter(|file| file.exists()));
        }
    }
    candidates.extend(NAMES.iter().map(PathBuf::from));
    candidates
}
