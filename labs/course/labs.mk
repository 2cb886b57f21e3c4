# The course's targets, included by the Makefiles of the repository and of a handout.
COURSE := PYTHONDONTWRITEBYTECODE=1 python3 -m labs.course
# words.mk has put the words of the command line into the environment, so the shell does not run them.
# $(call given,--lab,N): the option with N's value, unless that is empty.
given = $${$(2):+"$(1)=$$$(2)"}
LAB_OPTIONS := $(call given,--lab,N) $(call given,--seed,SEED) $(call given,--test,TEST) $${UNSAFE:+--unsafe}
.PHONY: lab check hint grade watch reset progress mine

lab: ## copy a lab's skeleton to work/: N=06 (never overwrites)
	@$(COURSE) lab $(LAB_OPTIONS)

check: ## build a lab, run its public tests: N=06 [TEST=name SEED=7]
	@$(COURSE) check $(LAB_OPTIONS)

hint: ## print the next hint of a lab; hints ask before they tell
	@$(COURSE) hint $(LAB_OPTIONS)

grade: ## run all tests of a lab, with points (REPORTS=folder: files)
	@$(COURSE) grade $(LAB_OPTIONS) $(call given,--submission,SUBMISSION) $(call given,--reports,REPORTS)

watch: ## repeat make check whenever you save
	@$(COURSE) watch $(LAB_OPTIONS)

reset: ## start a lab over; your files are kept aside
	@$(COURSE) reset $(LAB_OPTIONS)

progress: ## show your progress in all labs
	@$(COURSE) progress

mine: ## lab 13: train with all your labs, kill a rank, resume
	@$(COURSE) mine

# For instructors: not in a handout.
.PHONY: handout instructor soak grade-the-grader mutate
handout: ## make the students' archive: scanned for leaks, built from scratch, shown to score zero
	@$(COURSE) handout $(LAB_OPTIONS)

instructor: ## make the instructors' archive: solutions, hidden tests, mutants
	@$(COURSE) instructor $(LAB_OPTIONS)

grade-the-grader: ## test each lab's skeleton, solution, mutants, cheats; prints a table (N=06: one lab)
	@$(COURSE) grade-the-grader $(LAB_OPTIONS)

soak: ## run a lab's tests on its solution, 200 times under load (N=06 ROUNDS=200)
	@$(COURSE) soak $(LAB_OPTIONS) $(call given,--rounds,ROUNDS)

mutate: ## generate wrong solutions of a lab: which test rejects each? (N=06; MUTANT=id: one)
	@.ci/deps python3-clang-14
	@$(subst python3,/usr/bin/python3,$(COURSE)) mutate $(LAB_OPTIONS) $(call given,--mutant,MUTANT) $(call given,--most,MOST)
