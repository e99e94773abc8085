package onelock

/**
 * Every exception of this package. Tell them apart by class, or by [kind], which is the same in every language.
 *
 * The message names the lock, the call, what was found and what to do. It never contains a password or a token.
 */
sealed class OnelockException(failure: Failure, cause: Throwable? = null) : RuntimeException(failure.text, cause) {
    /** What went wrong. */
    val kind: ErrorKind = failure.kind

    /** The name of the lock, unprintable bytes escaped; null when the error concerns no lock. */
    val lock: String? = failure.lock

    /** The call that failed, in a few words: `acquire`, `extend`, `connect` ... */
    val tried: String = failure.tried

    /** What was found, without the name of the lock and the hint. */
    val detail: String = failure.detail

    /** The answer of each server; empty when no server was at fault. */
    val causes: List<String> = failure.causes

    /** Whether the same call may succeed later, without any change. */
    val isRetryable: Boolean get() = ROWS.getValue(kind).retryable

    internal companion object {
        val ROWS: Map<ErrorKind, ErrorRow> by lazy { errorRows().associateBy { it.kind } }
    }
}

/** What is known about an error; made by this package alone. */
class Failure internal constructor(
    internal val kind: ErrorKind,
    internal val text: String,
    internal val lock: String? = null,
    internal val tried: String,
    internal val detail: String,
    internal val causes: List<String> = emptyList(),
    internal val reason: LossReason? = null,
)

/** The lock was not acquired, but nothing failed: it was busy, or the wait ended. */
sealed class LockNotAcquiredException(failure: Failure) : OnelockException(failure)

/** A single try was refused: the lock is held. */
class LockBusyException internal constructor(failure: Failure) : LockNotAcquiredException(failure)

/** The wait was used up while the lock was held. */
class LockTimeoutException internal constructor(failure: Failure) : LockNotAcquiredException(failure)

/** The caller stopped waiting, by a [Cancel]. A coroutine that is cancelled gets its own `CancellationException` instead. */
class LockCancelledException internal constructor(failure: Failure) : LockNotAcquiredException(failure)

/** The lease ended without a release: the lock may have another holder now. */
class LockLostException internal constructor(failure: Failure) : OnelockException(failure) {
    /** Why it was lost; null when it is not known here. */
    val reason: LossReason? = failure.reason
}

/** The lease was released or detached before. */
class LockNotHeldException internal constructor(failure: Failure) : OnelockException(failure)

/** No server could be reached in time. */
class ServerUnavailableException internal constructor(failure: Failure) : OnelockException(failure)

/** Too few of several independent servers answered in time. */
class NoQuorumException internal constructor(failure: Failure) : OnelockException(failure)

/** User name or password were refused. */
class AuthenticationFailedException internal constructor(failure: Failure) : OnelockException(failure)

/** The user lacks the permission for a command or a key. */
class NotPermittedException internal constructor(failure: Failure) : OnelockException(failure)

/** The server is a replica. */
class ServerReadOnlyException internal constructor(failure: Failure) : OnelockException(failure)

/** The server is up but refuses to write: out of memory, failing to persist, loading, running a long script. */
class ServerRefusedException internal constructor(failure: Failure) : OnelockException(failure)

/** The key is another kind of lock, or not a lock. */
class WrongKindException internal constructor(failure: Failure) : OnelockException(failure)

/** An argument was refused before any I/O. */
class InvalidArgumentException internal constructor(failure: Failure) : OnelockException(failure)

/** The store cannot do what was asked. */
class UnsupportedException internal constructor(failure: Failure) : OnelockException(failure)

/** The owner of a read lease asks for the write lock of the same name: it would wait for itself. */
class WouldDeadlockException internal constructor(failure: Failure) : OnelockException(failure)

/** A semaphore has another number of permits than was said, or none is set. */
class PermitsMismatchException internal constructor(failure: Failure) : OnelockException(failure)

/** The client was closed. */
class ClientClosedException internal constructor(failure: Failure) : OnelockException(failure)

/** The lease belongs to the parent process. */
class LeaseForkedException internal constructor(failure: Failure) : OnelockException(failure)

/** The machine has no thread, file descriptor or memory left; the same call may succeed later. */
class SystemLimitException internal constructor(failure: Failure) : OnelockException(failure)

/** A defect of this library. */
class InternalErrorException internal constructor(failure: Failure, cause: Throwable? = null) : OnelockException(failure, cause)

internal fun Failure.toException(): OnelockException = when (kind) {
    ErrorKind.BUSY -> LockBusyException(this)
    ErrorKind.TIMEOUT -> LockTimeoutException(this)
    ErrorKind.CANCELLED -> LockCancelledException(this)
    ErrorKind.LOST -> LockLostException(this)
    ErrorKind.NOT_HELD -> LockNotHeldException(this)
    ErrorKind.UNAVAILABLE -> ServerUnavailableException(this)
    ErrorKind.NO_QUORUM -> NoQuorumException(this)
    ErrorKind.AUTH_FAILED -> AuthenticationFailedException(this)
    ErrorKind.NOT_PERMITTED -> NotPermittedException(this)
    ErrorKind.READ_ONLY -> ServerReadOnlyException(this)
    ErrorKind.SERVER_REFUSED -> ServerRefusedException(this)
    ErrorKind.WRONG_KIND -> WrongKindException(this)
    ErrorKind.INVALID_ARGUMENT -> InvalidArgumentException(this)
    ErrorKind.UNSUPPORTED -> UnsupportedException(this)
    ErrorKind.WOULD_DEADLOCK -> WouldDeadlockException(this)
    ErrorKind.PERMITS_MISMATCH -> PermitsMismatchException(this)
    ErrorKind.CLOSED -> ClientClosedException(this)
    ErrorKind.FORKED -> LeaseForkedException(this)
    ErrorKind.SYSTEM_LIMIT -> SystemLimitException(this)
    ErrorKind.INTERNAL -> InternalErrorException(this)
}

/** Calls the library; what it reports becomes an exception of this package, a panic too. */
internal inline fun <T> calling(call: () -> T): T = try {
    call()
} catch (error: NativeException.Failed) {
    throw error.toException()
} catch (panic: InternalException) {
    throw panicked(panic)
}

internal fun NativeException.Failed.toException(): OnelockException =
    Failure(kind, text, lock, tried, detail, causes, reason).toException()

internal fun invalid(tried: String, detail: String): InvalidArgumentException =
    InvalidArgumentException(Failure(ErrorKind.INVALID_ARGUMENT, "$tried: $detail", null, tried, detail))

internal fun panicked(panic: InternalException): OnelockException {
    val detail = "it panicked: ${panic.message}"
    return InternalErrorException(Failure(ErrorKind.INTERNAL, "run a call: $detail", null, "run a call", detail), panic)
}

/** The class of the exceptions of a kind. */
internal fun exceptionClass(kind: ErrorKind): Class<out OnelockException> =
    Failure(kind, "", tried = "", detail = "").toException().javaClass
