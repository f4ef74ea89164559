//! Which path is answered by what.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};

use super::authenticate::{authenticate, find_key};
use super::browser::check_browser;
use super::client::recognize;
use super::error::{method_not_allowed, not_found};
use super::management::{Guard, admin_routes, guard};
use super::state::AppState;
use super::{anthropic, decisions, docs_page, handlers, middleware, openapi, pooling, ui_files};

/// All routes, with what happens around each.
pub(super) fn router(app: Arc<AppState>) -> Router {
    let mut router = Router::new()
        .route("/", get(docs_page::home))
        .route("/v1/models", get(handlers::models))
        .route("/v1/models/{*model}", get(handlers::model))
        .route("/v1/completions", post(handlers::completions))
        .route("/v1/chat/completions", post(handlers::chat_completions))
        .route(
            "/v1/chat/completions/batch",
            post(handlers::batch_chat_completions),
        )
        .route("/v1/responses", post(handlers::responses))
        .route(anthropic::MESSAGES, post(anthropic::messages))
        .route(anthropic::COUNT_TOKENS, post(anthropic::count_tokens))
        .route(decisions::DECISIONS, post(decisions::decisions))
        .route(decisions::SYSTEM_ONE, post(decisions::system_one))
        .route(pooling::EMBEDDINGS, post(pooling::embeddings))
        .route("/inference/v1/generate", post(handlers::generate))
        .route("/formwork/v1/check", post(handlers::check))
        .route("/tokenize", post(handlers::tokenize))
        .route("/detokenize", post(handlers::detokenize))
        .route("/health", get(handlers::health))
        .route("/ping", get(handlers::health).post(handlers::health))
        .route("/version", get(handlers::version));
    for path in pooling::SCORES {
        router = router.route(path, post(pooling::scores));
    }
    for path in pooling::RANKINGS {
        router = router.route(path, post(pooling::rankings));
    }
    if app.args.access.management_port.is_none() {
        router = router
            .route("/load", get(handlers::load))
            .route("/metrics", get(handlers::metrics));
        // Without keys anybody could ask.
        if app.keys.are_required() {
            router = router.merge(admin_routes());
        }
    }
    if !app.args.disable_fastapi_docs {
        router = router
            .route("/openapi.json", get(openapi::openapi))
            .route("/docs", get(docs_page::docs));
    }
    let has_ui = ui_files::has_ui(&app);
    if has_ui {
        router = router.route("/ui/{file}", get(ui_files::file));
    }
    let router = router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(app.clone(), recognize))
        .layer(from_fn_with_state(app.clone(), authenticate))
        .layer(from_fn_with_state(app.clone(), check_browser))
        .layer(from_fn_with_state(app.clone(), middleware::cors))
        .layer(from_fn_with_state(app.clone(), middleware::limit_head))
        .layer(from_fn(anthropic::in_its_words))
        .layer(from_fn_with_state(app.clone(), middleware::observe))
        .layer(from_fn_with_state(app.clone(), find_key))
        .with_state(app.clone());
    match app.args.root_path.as_str() {
        "" => router,
        // Inside, keys and figures go by the path without it.
        root => {
            let router = router.clone().nest_service(root, router);
            match has_ui {
                true => router.layer(from_fn_with_state(root.to_owned(), ui_files::to_folder)),
                false => router,
            }
        }
    }
}

/// The routes of `--management-port`.
pub(super) fn management_router(app: Arc<AppState>, is_loopback: bool) -> Router {
    let mut router = Router::new()
        .route("/health", get(handlers::health))
        .route("/version", get(handlers::version))
        .route("/load", get(handlers::load))
        .route("/metrics", get(handlers::metrics));
    // Else anybody could ask.
    if is_loopback || app.keys.are_required() {
        router = router.merge(admin_routes());
    }
    let state = Guard {
        app: app.clone(),
        is_loopback,
    };
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(state, guard))
        .layer(from_fn_with_state(app.clone(), middleware::limit_head))
        .layer(from_fn_with_state(app.clone(), middleware::observe))
        .with_state(app)
}
