//! What a container may do: capabilities, system calls, user.

/// `CAP_SYS_PTRACE`, for [`Terms::keeping`].
pub const SYS_PTRACE: u32 = 19;

/// What a process of a container may do.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    pub(super) arguments: Vec<String>,
    pub(super) user_namespace: bool,
}

impl Terms {
    /// Those that container runtimes give by default: root with fourteen capabilities and a system call filter.
    #[must_use]
    pub fn usual() -> Self {
        Self::default()
    }

    /// With one more capability.
    #[must_use]
    pub fn keeping(self, capability: u32) -> Self {
        self.with(&["--keep", &capability.to_string()])
    }

    /// Without `ptrace` and without the two calls for another process's memory, as in profiles for kernels before 4.8.
    #[must_use]
    pub fn strict(self) -> Self {
        self.with(&["--strict"])
    }

    /// As this user, who has no capability.
    #[must_use]
    pub fn as_user(self, id: u32) -> Self {
        self.with(&["--user", &id.to_string()])
    }

    /// `allowPrivilegeEscalation: false`.
    #[must_use]
    pub fn without_new_privileges(self) -> Self {
        self.with(&["--no-new-privileges"])
    }

    /// In a user namespace, as rootless containers are.
    #[must_use]
    pub fn in_user_namespace(mut self) -> Self {
        self.user_namespace = true;
        self
    }

    /// Of these namespaces those that are to be entered: nobody enters the user namespace that it is in.
    pub(super) fn namespaces<'a>(&self, with_user: &'a [&'a str]) -> &'a [&'a str] {
        &with_user[usize::from(!self.user_namespace)..]
    }

    fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|&word| word.to_owned()));
        self
    }
}
