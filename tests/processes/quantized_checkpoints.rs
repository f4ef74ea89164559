//! Checkpoints as quantizers write them through both processes.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use integration_tests::{formwork_batch, workspace};

use crate::quantized_checkpoint::{Form, Order, convert, read, write};

/// The built-in model in a form, with its tokenizer.
fn built_in_model(form: Form, folder: &Path) {
    let from = workspace().join("builtin-model/model");
    let plain = tempfile::tempdir().unwrap();
    convert(&from, form, folder, plain.path());
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ] {
        fs::copy(from.join(name), folder.join(name)).unwrap();
    }
}

fn run(model: Option<&Path>) -> Output {
    let mut command = formwork_batch();
    command.args(["--temperature", "0", "--prompt"]);
    command.arg("Generate a JSON with the brand and model of a car.");
    if let Some(model) = model {
        command.arg("--model").arg(model);
    }
    command.stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_quantized_folder_answers_as_the_model_that_it_was_made_of() {
    let expected = run(None);
    assert!(expected.status.success());
    for form in [
        Form::Fp8Block,
        Form::Int8Channel,
        Form::Gptq {
            bits: 4,
            group: Some(32),
            order: Order::PerInput,
        },
    ] {
        let folder = tempfile::tempdir().unwrap();
        built_in_model(form, folder.path());
        let found = run(Some(folder.path()));
        let errors = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success(), "{form:?}: {errors}");
        let found = String::from_utf8(found.stdout).unwrap();
        match form {
            // 4 bits may choose another car.
            Form::Gptq { .. } => assert!(found.contains("brand"), "{found}"),
            _ => assert_eq!(
                found,
                String::from_utf8(expected.stdout.clone()).unwrap(),
                "{form:?}"
            ),
        }
    }
}

#[test]
fn a_folder_that_contradicts_itself_says_where() {
    let folder = tempfile::tempdir().unwrap();
    built_in_model(Form::Awq { group: 64 }, folder.path());
    let (config, mut tensors) = read(folder.path());
    tensors.retain(|tensor| tensor.name != "model.layers.3.self_attn.k_proj.qzeros");
    write(folder.path(), &config, &tensors);
    let output = run(Some(folder.path()));
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = "tensor model.layers.3.self_attn.k_proj.qzeros is missing; I32 [3, 12] is needed (config.json: \
                    quantization_config.group_size)";
    assert!(message.contains(expected), "{message}");
}
