"""What can go wrong with the embedded Postgres. Each error is for the operator: its message says what to do."""


class EmbeddedPostgresError(Exception):
    """Base of all errors of this package."""


class NotStartedError(EmbeddedPostgresError):
    """Something was asked of a server that has not been started."""


class NotMainThreadError(EmbeddedPostgresError):
    """Only the main thread may start Postgres: the death signal of a child is tied to the thread that made it."""


class BinariesNotFoundError(EmbeddedPostgresError):
    """No Postgres that is new enough and runs on this machine."""


class VersionMismatchError(EmbeddedPostgresError):
    """The data was written by another major version of Postgres than the one that was found."""


class DataFolderError(EmbeddedPostgresError):
    """The data folder can't be made, read or used as it is."""


class SocketFolderError(EmbeddedPostgresError):
    """There is no safe folder for the socket."""


class NoUserError(EmbeddedPostgresError):
    """Postgres refuses to run as root, and no other way to run it works here."""


class InitialiseError(EmbeddedPostgresError):
    """`initdb` failed."""


class OldServerError(EmbeddedPostgresError):
    """A server that nobody owns any more still runs on the data folder."""


class StartError(EmbeddedPostgresError):
    """The server ended, or did not get ready in time; the message ends with what it logged."""


class AttachError(EmbeddedPostgresError):
    """Another process owns the data folder, but its server did not get ready in time."""


class RestartError(EmbeddedPostgresError):
    """The server ended again and again."""
