# frozen_string_literal: true

module Onelock
  # The base class of all errors of this library. Every message names the call, the lock, what was found, and what to do. None
  # contains a password or a token.
  class Error < StandardError
    class << self
      # The name of the kind of error, the same in every language.
      attr_reader :kind

      # The number of the kind, the same in every language.
      attr_reader :number

      # Whether the same call may succeed later, without any change.
      def retryable?
        @retryable
      end

      private

      def stands_for(kind, number, retryable: false)
        @kind = kind
        @number = number
        @retryable = retryable
        BY_NUMBER[number] = self
      end
    end

    # Every class by its number.
    BY_NUMBER = {} # rubocop:disable Style/MutableConstant

    # The name of the lock, bytes that are not printable escaped; nil when the error concerns no lock.
    attr_reader :lock_name

    # The call that failed, in a few words: `acquire`, `extend`, `connect` ...
    attr_reader :tried

    # What was found, without the name of the lock and the hint.
    attr_reader :detail

    # The answer of each server, one text per server; empty when no server was at fault.
    attr_reader :causes

    def initialize(message = nil, lock_name: nil, tried: nil, detail: nil, causes: [])
      super(message)
      @lock_name = lock_name
      @tried = tried
      @detail = detail
      @causes = causes
    end

    def kind
      self.class.kind
    end

    def number
      self.class.number
    end

    def retryable?
      self.class.retryable?
    end
  end

  # The base class of errors when the lock was not acquired, but nothing failed.
  class NotAcquired < Error
  end

  # A single try was refused: the lock is held.
  class LockBusy < NotAcquired
    stands_for "Busy", 1, retryable: true
  end

  # The time to wait passed while the lock was held.
  class LockTimeout < NotAcquired
    stands_for "Timeout", 2, retryable: true
  end

  # The wait was cancelled; nothing is held.
  class LockCancelled < NotAcquired
    stands_for "Cancelled", 3, retryable: true
  end

  # The lease ended without a release: the lock may have another holder now.
  class LockLost < Error
    stands_for "Lost", 10

    # Why it was lost, where that is known: see `Lease#loss`.
    attr_accessor :reason
  end

  # The lease was released or detached before.
  class LockNotHeld < Error
    stands_for "NotHeld", 11
  end

  # No server could be reached in time.
  class ServerUnavailable < Error
    stands_for "Unavailable", 20, retryable: true
  end

  # Too few of several independent servers answered in time.
  class NoQuorum < Error
    stands_for "NoQuorum", 21, retryable: true
  end

  # User name or password were refused.
  class AuthenticationFailed < Error
    stands_for "AuthFailed", 22
  end

  # The user lacks the permission for a command or a key.
  class NotPermitted < Error
    stands_for "NotPermitted", 23
  end

  # The server is a replica.
  class ServerReadOnly < Error
    stands_for "ReadOnly", 24, retryable: true
  end

  # The server is up but refuses to write: out of memory, failing to persist, loading, running a long script.
  class ServerRefused < Error
    stands_for "ServerRefused", 25, retryable: true
  end

  # The key is another kind of lock, or not a lock.
  class WrongKind < Error
    stands_for "WrongKind", 30
  end

  # An argument was refused before any I/O.
  class InvalidArgument < Error
    stands_for "InvalidArgument", 31
  end

  # The store cannot do what was asked.
  class Unsupported < Error
    stands_for "Unsupported", 32
  end

  # The owner of a read lease asks for the write lock of the same name: it would wait for itself.
  class WouldDeadlock < Error
    stands_for "WouldDeadlock", 33
  end

  # A semaphore has another number of permits than was said, or none is set.
  class PermitsMismatch < Error
    stands_for "PermitsMismatch", 34
  end

  # The client was closed.
  class ClientClosed < Error
    stands_for "Closed", 40
  end

  # The lease belongs to the parent process.
  class LeaseForked < Error
    stands_for "Forked", 41
  end

  # The machine has no thread, file descriptor or memory left; the same call may succeed later.
  class SystemLimit < Error
    stands_for "SystemLimit", 42, retryable: true
  end

  # A defect of this library.
  class InternalError < Error
    stands_for "Internal", 50
  end

  Error::BY_NUMBER.freeze
end
