# frozen_string_literal: true

require "ffi"

module Onelock
  # The C library, function by function. `onelock.h` is its documentation; nothing here decides anything.
  #
  # A call that may wait, for a server or for another thread of the library, is `waiting`: other Ruby threads run meanwhile.
  # The others are quick. After any of them, as after every method that is not written in Ruby, an exception from outside may come.
  module Native
    extend FFI::Library

    ABI = 1

    # Where the library is: named by the program, in the gem, or where the system has it.
    def self.location
      given = ENV.fetch("ONELOCK_LIBRARY", "")
      return given unless given.empty?

      own = File.expand_path("native/libonelock.#{FFI::Platform::LIBSUFFIX}", __dir__)
      File.exist?(own) ? own : ["libonelock.#{FFI::Platform::LIBSUFFIX}.#{VERSION}", "onelock"]
    end

    ffi_lib location

    TYPES = { "p" => :pointer, "i" => :int64, "u" => :uint32, "s" => :string, "z" => :size_t, "b" => :bool,
              "d" => :double, "q" => :uint64, "v" => :void }.freeze
    private_constant :TYPES

    # `quick "p u", :function` has these parameters and returns a status; another result stands behind an arrow.
    def self.declare(signature, names, **how)
      parameters, result = signature.split("->").map(&:strip)
      types = parameters.split.map { |letter| TYPES.fetch(letter) }
      names.each { |name| attach_function(name, :"onelock_#{name}", types, TYPES.fetch(result || "u"), **how) }
    end

    def self.quick(signature, *names)
      declare(signature, names)
    end

    def self.waiting(signature, *names)
      declare(signature, names, blocking: true)
    end

    private_class_method :declare, :quick, :waiting

    quick "-> s", :version
    quick "-> u", :abi_version
    quick "u -> s", :kind_name, :origin_name, :grade_name, :loss_name, :release_name, :severity_name, :status_name, :status_hint
    quick "u -> b", :status_is_retryable, :status_is_not_acquired

    quick "p -> s", :error_message, :error_lock_name, :error_tried, :error_detail
    quick "p -> z", :error_cause_count
    quick "p z -> s", :error_cause
    quick "p -> v", :error_free

    quick "-> p", :client_options_new, :lock_options_new, :owner_new
    quick "p -> v", :client_options_free, :lock_options_free, :owner_free
    quick "p z p p", :owner_named

    quick "s p p p", :client_new
    waiting "p p p", :client_check, :client_stats
    waiting "p p z p p", :client_diagnose, :client_inspect, :client_force_release, :client_force_release_foreign
    waiting "p p z u s p p", :client_list
    waiting "p p", :client_close
    quick "p -> v", :client_free
    quick "p p p p p", :client_options_set_credentials
    waiting "p s s p", :credentials_request_answer
    waiting "p s p", :credentials_request_fail
    quick "p -> v", :credentials_request_free

    quick "p u p z p p p", :lock_new
    quick "p z p p", :multi_new
    quick "p p p", :lock_options_set_owner
    quick "p u p", :lock_options_set_permits, :lock_options_set_count
    quick "p i p", :lock_options_set_renew_every
    quick "p -> v", :lock_free
    waiting "p p p", :lock_try_acquire
    waiting "p i p p", :lock_acquire_start
    waiting "p s p p", :lock_attach
    waiting "p p p", :lock_is_locked
    waiting "p p p p p p", :lock_permits
    waiting "p u p", :lock_set_permits

    quick "p p p", :acquisition_fd
    waiting "p p p", :acquisition_finish
    waiting "p p", :acquisition_cancel
    quick "p -> v", :acquisition_free

    quick "p -> b", :lease_is_held
    quick "p -> q", :lease_fencing_token, :lease_hold_count
    quick "p p z -> q", :lease_fencing_token_of
    quick "p -> u", :lease_fencing_grade, :lease_loss, :lease_kind
    quick "p -> i", :lease_remaining_ms
    quick "p p p p", :lease_name
    quick "p p", :lease_check_loss
    quick "p p p", :lease_lost_fd
    waiting "p p p p", :lease_on_lost, :lease_on_jeopardy
    waiting "p i p", :lease_extend
    waiting "p p", :lease_downgrade
    waiting "p p p", :lease_release, :lease_detach
    quick "p -> v", :lease_free
    quick "p -> s", :proof_text
    quick "p -> v", :proof_free

    quick "p -> u", :facts_grade
    quick "p -> s", :facts_server
    quick "p -> z", :facts_warning_count
    quick "p z -> s", :facts_warning
    quick "p -> v", :facts_free

    quick "p -> u", :diagnosis_severity, :diagnosis_grade
    quick "p -> z", :diagnosis_count
    quick "p z -> s", :diagnosis_server, :diagnosis_step, :diagnosis_detail, :diagnosis_todo
    quick "p z -> u", :diagnosis_step_severity, :diagnosis_error
    quick "p z -> z", :diagnosis_measured_count
    quick "p z z -> s", :diagnosis_measured_name
    quick "p z z -> d", :diagnosis_measured
    quick "p -> v", :diagnosis_free

    quick "p -> u", :inspection_kind, :inspection_origin, :inspection_owner_pid
    quick "p -> s", :inspection_foreign_holder, :inspection_owner_label, :inspection_owner_host
    quick "p -> q", :inspection_hold_count, :inspection_fencing_token, :inspection_owner_since_ms
    quick "p -> i", :inspection_ttl_left_ms, :inspection_permits, :inspection_free_permits, :inspection_waiting
    quick "p -> b", :inspection_has_owner
    quick "p -> z", :inspection_waiters
    quick "p z -> s", :inspection_waiter_label, :inspection_waiter_host
    quick "p z -> u", :inspection_waiter_pid
    quick "p z -> q", :inspection_waiter_since_ms
    quick "p -> v", :inspection_free

    quick "p -> z", :page_count
    quick "p z p -> p", :page_name
    quick "p z p p", :page_inspection
    quick "p z -> i", :page_waiting
    quick "p -> s", :page_next
    quick "p -> v", :page_free

    quick "p u -> q", :stats_counter, :stats_histogram_count, :stats_histogram_sum_us
    quick "p u z -> q", :stats_histogram_bucket
    quick "p u d -> q", :stats_histogram_quantile_us
    quick "p -> v", :stats_free

    quick "q -> p", :gate_new
    quick "p q -> b", :gate_admit
    quick "p -> q", :gate_highest
    quick "p -> v", :gate_free

    # The setter of each option of a client or a lock.
    def self.setter(noun, name, type)
      letters = { duration: "i", flag: "b", share: "d", count: "u", grade: "u", notify: "u",
                  bytes: "p z", certificate: "s s" }.fetch(type, "s")
      quick("p #{letters} p", :"#{noun}_set_#{name}")
    end

    class << self
      # Frees the lease as the function above, but for leases with callbacks: it waits for one that runs.
      def attach_waiting_free
        attach_function(:lease_free_waiting, :onelock_lease_free, [:pointer], :void, blocking: true)
      end

      # A place of the size of a pointer, for an error or another result. Who is done with it gives it back, zeroed.
      def place
        @places.pop || FFI::MemoryPointer.new(:pointer)
      end

      def put_back(place)
        place.put_uint64(0, 0)
        @places << place if @places.size < 64
      end

      # Calls the function with a place for an error behind the arguments, and raises what it writes there.
      def call(name, *arguments)
        error = found(name, *arguments)
        raise error if error
      end

      # The same, but returns the exception; nil for none.
      def found(name, *arguments)
        error = place
        status = public_send(name, *arguments, error)
        return exception(status, error.read_pointer) unless status.zero?

        clean = error
        error = nil
        put_back(clean)
        nil
      ensure
        # also what a call wrote at whose end an exception from outside came
        error_free(error.read_pointer) if error
      end

      # The same, with a place of this type for a result before that; returns the result.
      def result(name, type, *arguments)
        place = FFI::MemoryPointer.new(type)
        call(name, *arguments, place)
        type == :bool ? !place.get_uint8(0).zero? : place.get(type, 0)
      end

      # The same for an object of the library, which is freed when nothing refers to it any more.
      def object(name, free, *arguments)
        owned(result(name, :pointer, *arguments), free)
      end

      def owned(pointer, free)
        raise SystemLimit, "make a handle: there is no room for another one" if pointer.null?

        FFI::AutoPointer.new(pointer, method(free))
      end

      # The exception of an error object.
      def exception(status, error)
        (Error::BY_NUMBER[status] || Error).new(
          text(error_message(error)),
          lock_name: text(error_lock_name(error)), tried: text(error_tried(error)), detail: text(error_detail(error)),
          causes: Array.new(error_cause_count(error)) { |at| text(error_cause(error, at)) }
        )
      end

      # Text of the library, which is UTF-8; FFI takes it for bytes.
      def text(found)
        found&.force_encoding(Encoding::UTF_8)
      end

      # The word for a number of the library, as a symbol; nil for no word. Its names are `BestEffort` or `max_hold`.
      def word(name, number)
        public_send(name, number)&.gsub(/(?<=[a-z])(?=[A-Z])/, "_")&.downcase&.to_sym
      end
    end

    @places = []

    attach_waiting_free
    private_class_method :attach_waiting_free

    unless abi_version == ABI
      raise LoadError, "libonelock #{version} has the interface #{abi_version}; this gem (#{VERSION}) needs #{ABI}"
    end
  end

  # The version of the C library.
  def self.native_version
    Native.version
  end
end
