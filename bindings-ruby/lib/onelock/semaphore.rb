# frozen_string_literal: true

module Onelock
  # How many permits a semaphore has: `total`, `held` and `free`.
  Permits = Struct.new(:total, :held, :free, keyword_init: true)

  # A semaphore by name, from `Client#semaphore`: at most so many holders at a time, in all programs together.
  #
  #   downloads = client.semaphore("downloads", 4)
  #   downloads.synchronize { fetch(url) }
  #
  # A permit is released by its own lease, once. The permits of a program that died come back after their ttl. `locked?` says
  # whether no permit is free.
  class Semaphore < Lock
    # As `Lock#synchronize`, with so many permits, all or none.
    def synchronize(wait: DEFAULT, permits: 1, cancel: nil, &block)
      scope(wait, cancel: cancel, **counted(permits), &block)
    end

    # Waits until so many permits are free and takes them, all or none; see `Lock#acquire`.
    #
    # Raises PermitsMismatch when the semaphore has another number of permits than `Client#semaphore` was told, or none is set;
    # InvalidArgument when it has fewer than `permits`.
    def acquire(wait: DEFAULT, permits: 1, cancel: nil)
      granted { |lease| take(lease, wait, cancel: cancel, **counted(permits)) }
    end

    # One try: nil when too few permits are free. One round trip, no waiting. Otherwise as `acquire`.
    def try_acquire(permits: 1)
      acquire(wait: 0, permits: permits)
    rescue LockBusy
      nil
    end

    # How many permits there are, and how many of them are held; nil when no number is set yet. One round trip.
    def permits
      known = FFI::MemoryPointer.new(:bool)
      numbers = FFI::MemoryPointer.new(:uint64, 3)
      Native.call(:lock_permits, handle, known, numbers, numbers + 8, numbers + 16)
      return nil if known.get_uint8(0).zero?

      Permits.new(total: numbers.get_uint64(0), held: numbers.get_uint64(8), free: numbers.get_uint64(16)).freeze
    end

    # Sets how many permits there are in all, 1 to 1024. Whoever holds permits keeps them. Returns what `permits` does.
    #
    # Programs that name another number get PermitsMismatch from now on.
    def set_permits(number) # rubocop:disable Naming/AccessorMethodName
      Native.call(:lock_set_permits, handle, Arguments.count(number, "permits"))
      permits
    end

    private

    def counted(permits)
      permits == 1 && permits.is_a?(Integer) ? {} : { count: Arguments.count(permits, "permits") }
    end
  end
end
