# frozen_string_literal: true

module Onelock
  # What `Client#check` found: `grade` of fencing tokens, `server` (name and version), and `warnings`: settings that can break
  # locks, a sentence for each.
  Facts = Struct.new(:grade, :server, :warnings, keyword_init: true)

  # One step of a diagnosis.
  #
  # `server`:: which one it is about, without secrets; empty for what concerns all of them
  # `step`:: what was tried: `name`, `tcp`, `tls`, `user`, `role`, `permission` ...
  # `severity`:: `:skipped`, `:passed`, `:remark`, `:warning` or `:failed`
  # `detail`, `todo`:: what was found, and what to do about it
  # `error`:: the class of the error that a call would raise because of it, if the step failed
  # `measured`:: values by names that end with their unit, such as `median_us`
  Finding = Struct.new(:server, :step, :severity, :detail, :todo, :error, :measured, keyword_init: true)

  # What `Client#diagnose` found: the gravest `severity`, the `grade` of fencing tokens, and `findings`, in the order in which the
  # steps were tried.
  Diagnosis = Struct.new(:severity, :grade, :findings, keyword_init: true)

  module Found
    class << self
      def facts(pointer)
        facts = Native.owned(pointer, :facts_free)
        Facts.new(
          grade: Native.word(:grade_name, Native.facts_grade(facts)), server: Native.text(Native.facts_server(facts)),
          warnings: Array.new(Native.facts_warning_count(facts)) { |at| Native.text(Native.facts_warning(facts, at)) }.freeze
        ).freeze
      end

      def diagnosis(pointer)
        found = Native.owned(pointer, :diagnosis_free)
        Diagnosis.new(
          severity: Native.word(:severity_name, Native.diagnosis_severity(found)),
          grade: Native.word(:grade_name, Native.diagnosis_grade(found)),
          findings: Array.new(Native.diagnosis_count(found)) { |at| finding(found, at) }.freeze
        ).freeze
      end

      private

      def finding(found, index)
        server, step, detail, todo = %i[server step detail todo].map do |field|
          Native.text(Native.public_send(:"diagnosis_#{field}", found, index))
        end
        Finding.new(
          server: server, step: step, detail: detail, todo: todo,
          severity: Native.word(:severity_name, Native.diagnosis_step_severity(found, index)),
          error: Error::BY_NUMBER[Native.diagnosis_error(found, index)],
          measured: measured(found, index)
        ).freeze
      end

      def measured(found, index)
        Array.new(Native.diagnosis_measured_count(found, index)) do |number|
          name = Native.text(Native.diagnosis_measured_name(found, index, number))
          [name, Native.diagnosis_measured(found, index, number)]
        end.to_h.freeze
      end
    end
  end
end
