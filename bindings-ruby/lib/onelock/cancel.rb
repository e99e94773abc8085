# frozen_string_literal: true

module Onelock
  # Ends waiting acquires from another thread: `lock.acquire(cancel: cancel)` raises `LockCancelled` when `cancel.cancel` was
  # called, and every later one does so at once.
  class Cancel
    def initialize
      @cancelled = false
      @waiting = {}
    end

    # Ends them. May be called again, and in a trap handler.
    def cancel
      @cancelled = true
      @waiting.keys.each { |acquisition| Native.acquisition_cancel(FFI::Pointer.new(acquisition), nil) }
      nil
    end

    # Whether `cancel` was called.
    def cancelled?
      @cancelled
    end

    private

    # Tells of an acquisition that is under way during the block.
    def during(acquisition)
      @waiting[acquisition.address] = true
      # it may have come before that
      cancel if @cancelled
      yield
    ensure
      @waiting.delete(acquisition.address)
    end
  end
end
