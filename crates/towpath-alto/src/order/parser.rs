//! Recursive descent parser for statements, with one function per grammar rule.

use super::{
    Direction, Key, Statement, SyntaxError,
    condition::{Comparison, Condition, Operand},
    lexer::{Lexer, Token, unquote},
    value::Value,
};

/// Maximum number of keys. More would never break a tie in practice.
pub(super) const MAX_KEYS: usize = 16;

/// Maximum nesting of parentheses and NOTs, which bounds the stack.
pub(super) const MAX_DEPTH: usize = 32;

/// Maximum number of values in one IN.
pub(super) const MAX_MEMBERS: usize = 256;

/// Parses a statement.
pub(super) fn statement(text: &str) -> Result<Statement, SyntaxError> {
    let mut parser = Parser { lexer: Lexer::new(text)? };
    parser.lexer.expect(Token::By, "BY")?;
    parser.lexer.accept(Token::Compare(Comparison::Equal));
    let keys = parser.keys()?;
    if !parser.lexer.accept(Token::Where) {
        parser.lexer.expect(Token::End, "',', WHERE or the end")?;
        return Ok(Statement { keys, condition: None, backup: None });
    }
    let condition = parser.disjunction(0)?;
    parser.lexer.expect(Token::End, "AND, OR or the end")?;
    Ok(Statement { keys, condition: Some(condition), backup: None })
}

struct Parser<'a> {
    lexer: Lexer<'a>,
}

impl Parser<'_> {
    fn keys(&mut self) -> Result<Vec<Key>, SyntaxError> {
        let mut keys = vec![self.key()?];
        while self.lexer.accept(Token::Comma) {
            if keys.len() == MAX_KEYS {
                return Err(self.lexer.failure(format!("at most {MAX_KEYS} keys")));
            }
            keys.push(self.key()?);
        }
        Ok(keys)
    }

    fn key(&mut self) -> Result<Key, SyntaxError> {
        let name = self.lexer.text().to_owned();
        self.lexer.expect(Token::Name, "a metric or a property")?;
        let direction = match self.lexer.token() {
            Token::Asc => Some(Direction::Min),
            Token::Desc => Some(Direction::Max),
            _ => None,
        };
        if direction.is_some() {
            self.lexer.advance();
        }
        Ok(Key { name, direction })
    }

    fn disjunction(&mut self, depth: usize) -> Result<Condition, SyntaxError> {
        let mut condition = self.conjunction(depth)?;
        while self.lexer.accept(Token::Or) {
            condition = condition.or(self.conjunction(depth)?);
        }
        Ok(condition)
    }

    fn conjunction(&mut self, depth: usize) -> Result<Condition, SyntaxError> {
        let mut condition = self.negation(depth)?;
        while self.lexer.accept(Token::And) {
            condition = condition.and(self.negation(depth)?);
        }
        Ok(condition)
    }

    fn negation(&mut self, depth: usize) -> Result<Condition, SyntaxError> {
        if self.lexer.token() != Token::Not {
            return self.primary(depth);
        }
        let depth = self.deeper(depth)?;
        self.lexer.advance();
        Ok(Condition::Not(Box::new(self.negation(depth)?)))
    }

    fn primary(&mut self, depth: usize) -> Result<Condition, SyntaxError> {
        if self.lexer.token() != Token::Open {
            return self.predicate();
        }
        let depth = self.deeper(depth)?;
        self.lexer.advance();
        let condition = self.disjunction(depth)?;
        self.lexer.expect(Token::Close, "AND, OR or ')'")?;
        Ok(condition)
    }

    fn deeper(&self, depth: usize) -> Result<usize, SyntaxError> {
        if depth == MAX_DEPTH {
            return Err(self.lexer.failure(format!("at most {MAX_DEPTH} levels of NOT and parentheses")));
        }
        Ok(depth + 1)
    }

    fn predicate(&mut self) -> Result<Condition, SyntaxError> {
        match (self.operand("a condition")?, self.lexer.token()) {
            (left, Token::Compare(comparison)) => {
                let symbol = self.lexer.advance().text;
                let right = self.operand(format!("a value after '{symbol}'"))?;
                Ok(Condition::Compare { left, comparison, right })
            }
            (Operand::Name(name), Token::Is) => self.null(name),
            (Operand::Name(name), Token::In) => self.membership(name),
            (Operand::Name(name), Token::Not) => {
                self.lexer.advance();
                Ok(Condition::Not(Box::new(self.membership(name)?)))
            }
            (Operand::Name(name), _) => Ok(Condition::Bare(name)),
            (Operand::Value(_), _) => Err(self.lexer.failure("a comparison")),
        }
    }

    /// Parses `IS [NOT] NULL`.
    fn null(&mut self, name: String) -> Result<Condition, SyntaxError> {
        self.lexer.advance();
        let is_null = Condition::IsNull(name);
        if self.lexer.accept(Token::Not) {
            self.lexer.expect(Token::Null, "NULL")?;
            return Ok(Condition::Not(Box::new(is_null)));
        }
        self.lexer.expect(Token::Null, "NULL or NOT NULL")?;
        Ok(is_null)
    }

    /// Parses `IN (value, ..)`.
    fn membership(&mut self, name: String) -> Result<Condition, SyntaxError> {
        self.lexer.expect(Token::In, "IN")?;
        self.lexer.expect(Token::Open, "'(' after IN")?;
        let mut values = vec![self.literal("a number or a quoted text")?];
        while self.lexer.accept(Token::Comma) {
            if values.len() == MAX_MEMBERS {
                return Err(self.lexer.failure(format!("at most {MAX_MEMBERS} values")));
            }
            values.push(self.literal("a number or a quoted text")?);
        }
        self.lexer.expect(Token::Close, "',' or ')'")?;
        Ok(Condition::In { name, values })
    }

    fn operand(&mut self, expected: impl Into<String>) -> Result<Operand, SyntaxError> {
        if self.lexer.token() == Token::Name {
            return Ok(Operand::Name(self.lexer.advance().text.to_owned()));
        }
        self.literal(expected).map(Operand::Value)
    }

    fn literal(&mut self, expected: impl Into<String>) -> Result<Value, SyntaxError> {
        let value = match self.lexer.token() {
            Token::Number(number) => Value::Number(number),
            Token::Text => Value::Text(unquote(self.lexer.text()).into()),
            Token::True => Value::Bool(true),
            Token::False => Value::Bool(false),
            _ => return Err(self.lexer.failure(expected)),
        };
        self.lexer.advance();
        Ok(value)
    }
}
