//! Both real processes, as users run them.
