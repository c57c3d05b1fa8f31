//! Sentences of commands without a stream that stand for a limit, by program. A run of theirs that
//! ended well has none.

use everloop_core::stream::LimitClass::{self, Auth, Context, Credit, Network, Overload, Rate};

/// A program that prints text, and its sentences: the first that matches counts.
pub type TextDialect = (&'static str, &'static [(LimitClass, &'static str)]);

/// The known ones.
pub const TEXT_DIALECTS: &[TextDialect] = &[
    (
        // aider prints the errors of litellm by the name of their class.
        "aider",
        &[
            (Credit, "insufficient_quota"),
            (Credit, "credit balance is too low"),
            (Rate, "litellm.RateLimitError"),
            (Auth, "litellm.AuthenticationError"),
            (Auth, "litellm.PermissionDeniedError"),
            (Context, "litellm.ContextWindowExceededError"),
            (Overload, "litellm.ServiceUnavailableError"),
            (Overload, "litellm.InternalServerError"),
            (Network, "litellm.APIConnectionError"),
            (Network, "litellm.Timeout"),
        ],
    ),
    (
        "goose",
        &[
            (Credit, "insufficient_quota"),
            (Rate, "Rate limit exceeded:"),
            (Auth, "Authentication error:"),
            (Context, "Context length exceeded:"),
            (Overload, "Server error:"),
        ],
    ),
];
